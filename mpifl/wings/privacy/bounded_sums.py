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

import torch
from torch import Tensor

from mpifl.wings.privacy.draws import Draws

GRID = 1 << 20
"""The whole number that stands for half the width of a column's bounds."""


@dataclass(frozen=True)
class BoundedSum(ABC):
    """A sum over rows."""

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


class RowCount(BoundedSum):
    """How many rows there are."""

    def rows(self, numbers: Tensor) -> Tensor:
        """Return ones."""
        return torch.ones(len(numbers), 1, dtype=torch.int64)


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class PowerSum(BoundedSum):
    """The sum of a power of a column's numbers, in units of half the width of the bounds from their middle.

    NaN adds nothing; other numbers are clipped to the bounds.

    Attributes:
        column: The column.
        lower, upper: The bounds.
        power: 0, which counts numbers, 1 or 2.
    """

    column: int
    lower: float
    upper: float
    power: int

    @property
    def bound(self) -> int:
        """The largest number of a row."""
        return GRID if self.power else 1

    def rows(self, numbers: Tensor) -> Tensor:
        """Return the powers as whole numbers."""
        column = numbers[:, self.column, None]
        middle, half = (self.lower + self.upper) / 2, (self.upper - self.lower) / 2
        found = ((column.clamp(self.lower, self.upper) - middle) / half).clamp(-1.0, 1.0)
        # also where bounds that are equal in the shards' unit give 0 / 0
        return (found**self.power * self.bound).round().masked_fill(found.isnan(), 0.0).long()


@dataclass(frozen=True)
class BinCounts(BoundedSum):
    """How many of a column's numbers lie in bins of equal width; the first and the last bin have no end.

    NaN lies in no bin.

    Attributes:
        column: The column.
        lower, upper: The ends of the bins.
        bins: How many bins there are.
    """

    column: int
    lower: float
    upper: float
    bins: int

    @property
    def size(self) -> int:
        """How many bins there are."""
        return self.bins

    @property
    def edges(self) -> list[float]:
        """The numbers between the bins."""
        return [self.lower + (self.upper - self.lower) * nth / self.bins for nth in range(1, self.bins)]

    def rows(self, numbers: Tensor) -> Tensor:
        """Return at most a one for each row."""
        column = numbers[:, self.column].contiguous()
        places = torch.searchsorted(torch.tensor(self.edges, dtype=torch.float64), column, right=True)
        found = torch.zeros(len(column), self.bins, dtype=torch.int64)
        return found.scatter_(1, places[:, None], column.isnan().logical_not().long()[:, None])


SUMS = (RowCount, LevelCounts, PowerSum, BinCounts)
"""All sums whose bound is known to hold."""


def noise_of_sums(sums: Sequence[BoundedSum], noise: float, draws: Draws) -> Tensor:
    """Return whole-number noise for sums that are released together, int64 of shape [all sizes].

    Args:
        noise: z, the noise multiplier of all sums together.
        draws: A stream that only the site knows.
    """
    wide = (draws.whole_normal(one.size, one.deviation(noise, len(sums))) for one in sums)
    return torch.cat([*wide])
