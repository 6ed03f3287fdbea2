"""Sums over rows to which each row adds whole numbers of a bounded norm, whatever the row holds.

Whole numbers plus rounded normal noise are a rounded Gaussian mechanism, which is a function of the Gaussian
mechanism. So sums with bounds D_j and noise of deviation z sqrt(q) D_j, of q sums, cost together what one
Gaussian step with the multiplier z costs (Dwork & Roth 2014, Appendix A; Dong et al. 2022, Corollary 2).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import torch
from torch import Tensor

from mpifl.wings.privacy.draws import Draws

GRID = 1 << 20
"""The whole number that stands for half the width of a column's bounds."""
DIGITS = 6
"""Numbers are rounded to a power of ten that is 10^-6 to 10^-5 of the width of their bounds."""


@dataclass(frozen=True, slots=True)
class BoundedColumn:
    """A column of numbers with bounds, in the unit that it had before it was standardised.

    Attributes:
        place: The column.
        lower, upper: The bounds.
        mean, deviation: The shards have (number - mean) / deviation.
    """

    place: int
    lower: float
    upper: float
    mean: float = 0.0
    deviation: float = 1.0

    @property
    def step(self) -> Fraction:
        """What numbers are rounded to, a power of ten. It follows from the bounds alone."""
        width = Decimal(repr(self.upper)) - Decimal(repr(self.lower))
        return Fraction(10) ** (width.adjusted() + 1 - DIGITS)

    def edges(self, bins: int) -> list[Fraction]:
        """Return the numbers between bins of equal width."""
        lower, upper = Fraction(repr(self.lower)), Fraction(repr(self.upper))
        return [lower + (upper - lower) * nth / bins for nth in range(1, bins)]

    def whole(self, rows: Tensor) -> Tensor:
        """Return numbers that were clipped to the bounds, in whole steps; float64 of shape [n], NaN of NaN.

        So a number of few digits gives the same by any mean and deviation, however float32 has rounded it.
        """
        found = rows[:, self.place] * self.deviation + self.mean
        return (found.clamp(self.lower, self.upper) / float(self.step)).round()


@dataclass(frozen=True, slots=True)
class BoundedSum(ABC):
    """A sum over rows. Slots let no single sum have a method of its own."""

    @property
    def size(self) -> int:
        """How many numbers the sum has."""
        return 1

    @property
    def bound(self) -> int:
        """D, the largest L2 norm of what a row adds."""
        return 1

    @abstractmethod
    def rows(self, numbers: Tensor) -> Tensor:
        """Return what each row adds, int64 of shape [n, size].

        Args:
            numbers: The rows, float64 of shape [n, columns].
        """

    def deviation(self, noise: float, sums: int) -> float:
        """Return the deviation of the noise of each number, before it is rounded.

        Args:
            noise: z, the noise multiplier of all sums together.
            sums: q, how many sums there are.
        """
        return noise * math.sqrt(sums) * self.bound


@dataclass(frozen=True, slots=True)
class RowCount(BoundedSum):
    """How many rows there are."""

    def rows(self, numbers: Tensor) -> Tensor:
        """Return ones."""
        return torch.ones(len(numbers), 1, dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class LevelCounts(BoundedSum):
    """How many rows have each level of a category. A row has the first of the levels that its columns mark.

    Attributes:
        columns: The column of each level.
        marks: A number of a column above this one marks the level.
    """

    columns: tuple[int, ...]
    marks: tuple[float, ...]

    @property
    def size(self) -> int:
        """How many levels there are."""
        return len(self.columns)

    def rows(self, numbers: Tensor) -> Tensor:
        """Return at most a one for each row."""
        marked = (numbers[:, self.columns] > torch.tensor(self.marks, dtype=torch.float64)).long()
        return marked * (marked.cumsum(1) == 1)


@dataclass(frozen=True, slots=True)
class PowerSum(BoundedSum):
    """The sum of a power of a column's numbers, in units of half the width of the bounds from their middle.

    NaN adds nothing; other numbers are clipped to the bounds.

    Attributes:
        of: The column.
        power: 0, which counts numbers, 1 or 2.
    """

    of: BoundedColumn
    power: int

    @property
    def bound(self) -> int:
        """The largest number of a row."""
        return GRID if self.power else 1

    def rows(self, numbers: Tensor) -> Tensor:
        """Return the powers as whole numbers."""
        lower, upper = (one / float(self.of.step) / 2 for one in (self.of.lower, self.of.upper))
        found = ((self.of.whole(numbers) - (lower + upper)) / (upper - lower)).clamp(-1.0, 1.0)[:, None]
        # also where bounds that are equal give 0 / 0
        return (found**self.power * self.bound).round().masked_fill(found.isnan(), 0.0).long()


@dataclass(frozen=True, slots=True)
class BinCounts(BoundedSum):
    """How many of a column's numbers lie in bins of equal width; the first and the last bin have no end.

    NaN lies in no bin.

    Attributes:
        of: The column.
        bins: How many bins there are.
    """

    of: BoundedColumn
    bins: int

    @property
    def size(self) -> int:
        """How many bins there are."""
        return self.bins

    def rows(self, numbers: Tensor) -> Tensor:
        """Return at most a one for each row."""
        column = self.of.whole(numbers)
        # a whole number is not below an edge if it is not below the next whole number
        edges = [float(math.ceil(edge / self.of.step)) for edge in self.of.edges(self.bins)]
        places = torch.searchsorted(torch.tensor(edges, dtype=torch.float64), column, right=True)
        found = torch.zeros(len(column), self.bins, dtype=torch.int64)
        return found.scatter_(1, places[:, None], column.isnan().logical_not().long()[:, None])


SUMS = (RowCount, LevelCounts, PowerSum, BinCounts)
POWERS = (0, 1, 2)


def is_bounded(one: BoundedSum) -> bool:
    """Return whether the bound of a sum is known to hold."""
    if isinstance(one, PowerSum) and not (type(one.power) is int and one.power in POWERS):
        return False
    return type(one) in SUMS


def noise_of_sums(sums: Sequence[BoundedSum], noise: float, draws: Draws) -> Tensor:
    """Return whole-number noise for sums that are released together, int64 of shape [all sizes].

    Args:
        noise: z, the noise multiplier of all sums together.
        draws: A stream that only the site knows.
    """
    wide = (draws.whole_normal(one.size, one.deviation(noise, len(sums))) for one in sums)
    return torch.cat([*wide])
