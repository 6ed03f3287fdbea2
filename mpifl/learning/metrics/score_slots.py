"""Slots: where each silo's single scores lie in a vector that the silos of a federation add up to.

A silo's own slots hold its scores, and 0 in all others. So the sum has the scores of all silos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mpifl.data.shards import AnySpec, held_out
from mpifl.learning.metrics.places import NOT_COUNTED, are_codes
from mpifl.learning.tasks import Task

MOST_SENT = 1 << 20
"""The most single scores of all silos and columns together that silos send."""
EMPTY = NOT_COUNTED
"""The code that an empty slot stands for."""


@dataclass(frozen=True)
class ScoreSlots:
    """The slots of a federation.

    Attributes:
        rows: How many rows of scores each silo may have.
        columns: The numbers of columns C of the scores that metrics keep.
    """

    rows: Sequence[int]
    columns: Sequence[int]

    @classmethod
    def of(cls, task: Task, rows: Sequence[int]) -> ScoreSlots:
        """Return the slots for a task's metrics, given how many examples each silo holds out; none where the
        scores are too many, or nobody knows how many an example has."""
        metrics: list[Any] = [metric for metric in task.metrics().values() if hasattr(metric, "single")]
        kept = {len(metric.counts) for metric in metrics}
        few = {c for c in kept if task.scores_once and sum(rows) * c <= MOST_SENT}
        return cls(rows, sorted(few))

    @classmethod
    def by_work(cls, task: Task, spec: AnySpec, splits: Mapping[str, str | None]) -> dict[str, ScoreSlots]:
        """Return the slots of client methods that score, given the split of each; None is what a silo holds
        out."""
        silos = [entry.examples for entry in spec.silos]
        held = {
            work: [each.get(of or held_out(each) or "", 0) for each in silos] for work, of in splits.items()
        }
        return {work: cls.of(task, rows) for work, rows in held.items()}

    @property
    def lengths(self) -> dict[str, int]:
        """The length of each vector by its name."""
        return {_name(c): sum(self.rows) * c for c in self.columns}

    def put(self, silo: int, single: Mapping[int, Tensor]) -> dict[str, Tensor]:
        """Return a silo's vectors, given what `single_scores` returns of its examples.

        Each column is sorted: the vectors do not tell which scores are of one example, or of which. A silo
        with more scores than slots sends none.
        """
        found = {}
        for c in self.columns:
            first = sum(self.rows[:silo])
            vector = torch.zeros(sum(self.rows), c, dtype=torch.float64)
            if (codes := single.get(c)) is not None and len(codes) <= self.rows[silo]:
                vector[first : first + len(codes)] = codes.sort(0).values.double() - EMPTY
            found[_name(c)] = vector.reshape(-1)
        return found

    def read(self, sums: Mapping[str, Tensor]) -> dict[int, Tensor]:
        """Return the single scores of all silos, as `single_scores` does, given the sums of their vectors.

        Sums that are no scores are left out: a silo may have written to others' slots.
        """
        found = {}
        for c in self.columns:
            if (vector := sums.get(_name(c))) is not None:
                codes = (vector.cpu().clamp(0, 2.0**31 - 1) + EMPTY).int()
                if are_codes(codes) and torch.equal(codes.double() - EMPTY, vector.cpu().double()):
                    found[c] = codes.reshape(-1, c)
        return found


def _name(columns: int) -> str:
    return f"single scores of {columns}"
