"""What decides by the Gram matrix: mixing, a rule by weights, and both one after the other."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mpifl.common import InputError, rng
from mpifl.wings.robust.column_rules import Rule, median
from mpifl.wings.robust.mixing import BUCKETING, NNM, bucketing, nearest_neighbours
from mpifl.wings.robust.weight_rules import Matrix, WeightRule, tolerated

MEDIAN = Rule("median", median)


@dataclass(frozen=True)
class Weighing:
    """By what matrix the silos' vectors are multiplied, and which rule of columns follows, if any.

    Attributes:
        name: The rule, as the job has it.
        weights: A rule by weights; else `columns`.
        columns: Makes the rule of columns for so many liars.
        byzantine: How many silos may lie: a number, or a share of those that are asked.
        pre: One of `MIXINGS`.
        size: Of a bucket.
        seed: The job's.
        apart: Names of vectors that are no changes of the model: their median is taken, and they have no part
            in the decision.
    """

    name: str
    weights: WeightRule | None = None
    columns: Callable[[int], Rule] | None = None
    byzantine: float | None = None
    pre: str = "none"
    size: int = 1
    seed: int = 0
    apart: frozenset[str] = frozenset()

    @property
    def measures(self) -> bool:
        """Whether it needs the Gram matrix."""
        return self.weights is not None or self.pre == NNM

    @property
    def reference(self) -> bool:
        """Whether the server brings a vector of its own."""
        return self.weights is not None and self.weights.reference

    @property
    def own(self) -> bool:
        """Whether the rule is the user's."""
        return ":" in self.name

    def among(self, asked: int) -> Weighing:
        """Return the rule for a round that asks so many silos, where a share of these is a number."""
        if not isinstance(self.byzantine, float):
            return self
        return dataclasses.replace(self, byzantine=tolerated(self.byzantine, asked))

    def needs(self, silos: int) -> str:
        """Say how many silos it takes, as a line that has begun goes on; "" if so many suffice."""
        liars = tolerated(self.byzantine, silos)
        rows = self._least_rows(liars)
        least = max(rows, 2 * liars + 1)
        if self.pre == BUCKETING:
            least = max((rows - 1) * self.size + 1, 2 * liars + 1)
        given = f", byzantine = {self.byzantine}" if self.byzantine is not None else ""
        given += f", pre = '{self.pre}'" if self.pre != "none" else ""
        return f"[aggregation] rule = '{self.name}'{given} takes {least}" if silos < least else ""

    def _least_rows(self, liars: int) -> int:
        if self.weights is not None:
            return self.weights.least(liars)
        return self.columns(liars).least if self.columns is not None else 1

    def try_out(self, silos: int) -> None:
        """Apply it to the matrix of some vectors, to find out at the start whether a rule of the user's can
        be.

        Raises:
            InputError: it cannot.
        """
        n = silos + self.reference
        self.decide(np.eye(n) + 0.25 * np.ones((n, n)), silos, 0)
        if self.weights is None and self.columns is not None:
            self.columns(tolerated(self.byzantine, silos)).try_out(self._rows_of(silos))

    def _rows_of(self, silos: int) -> int:
        return math.ceil(silos / self.size) if self.pre == BUCKETING else silos

    def decide(self, gram: Matrix, silos: int, round: int) -> Matrix:
        """Return the matrix [rows, n] by which the vectors are multiplied; one row is the result itself where
        the rule is one by weights.

        Args:
            gram: Of n vectors: those of the silos and, if there is a `reference`, that. Unless it `measures`,
                it may hold anything.
            silos: How many there are.
            round: From which the buckets follow.

        Raises:
            InputError: the rule is the user's, and fails or returns no weights.
        """
        liars = tolerated(self.byzantine, silos)
        mixed = self._mixed(gram, liars, silos, round)
        if self.weights is None:
            return mixed
        mixed = np.pad(mixed, (0, 1)) if self.reference else mixed
        if self.reference:
            mixed[-1, -1] = 1.0
        seen = gram if self.pre == "none" else mixed @ gram @ mixed.T
        return (self._weights(seen, liars) @ mixed)[None]

    def _mixed(self, gram: Matrix, liars: int, silos: int, round: int) -> Matrix:
        if self.pre == NNM:
            return nearest_neighbours(gram[:silos, :silos], liars)
        if self.pre == BUCKETING:
            return bucketing(silos, self.size, rng.numpy_stream(self.seed, "bucketing", round))
        return np.eye(silos)

    def _weights(self, gram: Matrix, liars: int) -> Matrix:
        assert self.weights is not None
        if not self.own:
            return self.weights.weights(gram, liars)
        key = f"[aggregation] rule = '{self.name}'"
        try:
            found = np.asarray(self.weights.weights(gram, liars), np.float64)
        except Exception as error:
            line = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise InputError(f"{key} failed: {line}") from None
        if found.shape != (len(gram),) or not np.isfinite(found).all():
            wanted = "have its weights(gram, liars) return one finite number for each row"
            raise InputError(f"{key} returned no weights of {len(gram)} silos; {wanted}")
        return found

    def rule_after(self, matrix: Tensor, silos: int) -> Rule:
        """Return the rule of columns that multiplies rows by a matrix, shape [rows, n], and does the rest."""
        columns = None if self.columns is None else self.columns(tolerated(self.byzantine, silos))
        return Rule(self.name, functools.partial(_multiplied, matrix=matrix, then=columns))


def _multiplied(rows: Sequence[Tensor], matrix: Tensor, then: Rule | None) -> Tensor:
    """Return what a rule makes of matrix @ rows; without one the only row of the product."""
    if then is None:
        total = torch.zeros(len(rows[0]), dtype=torch.float64)
        for weight, row in zip(matrix[0].tolist(), rows, strict=True):
            total.add_(row, alpha=weight)
        return total.float().add_(0.0)
    return then((matrix @ torch.stack(list(rows)).double()).float().unbind())
