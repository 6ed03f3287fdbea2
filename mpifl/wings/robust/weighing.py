"""Decisions by the Gram matrix: mixing, a rule by weights, or mixing and then a rule."""

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
    """Decides which matrix multiplies the silos' vectors, and which rule of columns follows, if any.

    Attributes:
        name: The rule's name in the job.
        weights: A rule by weights; None if `columns` is given.
        columns: Makes the rule of columns, given the number of Byzantine silos.
        byzantine: How many silos may be Byzantine: a number, or a share of the asked silos.
        pre: One of `MIXINGS`.
        size: The size of a bucket.
        seed: The job's seed.
        apart: Names of vectors that are not changes of the model. They have no part in the decision, and
            their aggregate is the median.
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
        """Whether the server adds its own vector."""
        return self.weights is not None and self.weights.reference

    @property
    def own(self) -> bool:
        """Whether the rule is the user's own."""
        return ":" in self.name

    def among(self, asked: int) -> Weighing:
        """Return the rule for a round that asks so many silos: a share becomes a number."""
        if not isinstance(self.byzantine, float):
            return self
        return dataclasses.replace(self, byzantine=tolerated(self.byzantine, asked))

    def needs(self, silos: int) -> str:
        """Return the beginning of an error that says how many silos it needs; "" if `silos` are enough."""
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
        """Apply the rule to a Gram matrix at the start, to see whether a user's rule works.

        Raises:
            InputError: it does not.
        """
        n = silos + self.reference
        self.decide(np.eye(n) + 0.25 * np.ones((n, n)), silos, 0)
        if self.weights is None and self.columns is not None:
            self.columns(tolerated(self.byzantine, silos)).try_out(self._rows_of(silos))

    def _rows_of(self, silos: int) -> int:
        return math.ceil(silos / self.size) if self.pre == BUCKETING else silos

    def decide(self, gram: Matrix, silos: int, round: int) -> Matrix:
        """Return the matrix [rows, n] that multiplies the vectors. A rule by weights has one row: the result.

        Args:
            gram: The Gram matrix of n vectors: those of the silos, then the `reference`, if there is one. Its
                values are used only if the rule `measures`.
            silos: How many silos there are.
            round: The round, from which buckets are drawn.

        Raises:
            InputError: a user's rule fails, or does not return valid weights.
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
        """Return a rule of columns that multiplies rows by a matrix [rows, n], then applies `columns`."""
        columns = None if self.columns is None else self.columns(tolerated(self.byzantine, silos))
        return Rule(self.name, functools.partial(_multiplied, matrix=matrix, then=columns))


def _multiplied(rows: Sequence[Tensor], matrix: Tensor, then: Rule | None) -> Tensor:
    """Return a rule's result for matrix @ rows; without a rule, the product's only row."""
    if then is None:
        total = torch.zeros(len(rows[0]), dtype=torch.float64)
        for weight, row in zip(matrix[0].tolist(), rows, strict=True):
            total.add_(row, alpha=weight)
        return total.float().add_(0.0)
    return then((matrix @ torch.stack(list(rows)).double()).float().unbind())
