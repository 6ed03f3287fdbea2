"""Means and deviations from exact sums of numbers and of their squares, and how far silos part."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import torch
from torch import Tensor

from mpifl.sums import row_sums
from mpifl.wings.analysis import exact_products as exact

LEVELS = 2 * exact.SLICES - 1
FOLLOWING = 3
"""Different numbers of which the counts follow from the mean, the deviation and the total."""
SUMS = exact.SLICES + LEVELS
"""Whole numbers for a column: sums of its slices, and of the products of two slices by their level."""


class MeanDeviation(NamedTuple):
    """The mean and the sample deviation of a column; the deviation of one number is None."""

    mean: float
    deviation: float | None

    def in_unit(self, mean: float, deviation: float) -> MeanDeviation:
        """Return those of number * deviation + mean."""
        spread = None if self.deviation is None else self.deviation * deviation
        return MeanDeviation(self.mean * deviation + mean, spread)


def power_sums(columns: Tensor, tops: Tensor) -> Tensor:
    """Return sums of numbers and of their squares in whole numbers, int64 of shape [SUMS, c].

    Args:
        columns: At most `exact.BLOCK` rows, float32 of shape [n, c].
        tops: Powers of two above all magnitudes of each column, float64 of shape [c].
    """
    if (found := row_sums.power_sums(columns, 2.0**exact.BITS / tops)) is not None:
        return found
    parts = exact.slices(columns.double(), tops)
    squares = torch.zeros(LEVELS, columns.shape[1], dtype=torch.int64)
    for i, j in combinations_with_replacement(range(exact.SLICES), 2):
        squares[i + j] += (parts[i] * parts[j]).sum(0).long() * (1 if i == j else 2)
    return torch.cat([parts.sum(1).long(), squares])


def moments_of(sums: Sequence[int], top: float, count: int) -> MeanDeviation:
    """Return the mean and the deviation of a column, whose sums have no error.

    Args:
        sums: The column of `power_sums` over all rows.
        top: The column's power of two.
        count: How many numbers there are.
    """
    unit = Fraction(top) / (1 << exact.BITS * exact.SLICES)
    total, squares = (
        sum(one << exact.BITS * (len(part) - 1 - nth) for nth, one in enumerate(part))
        for part in (sums[: exact.SLICES], sums[exact.SLICES :])
    )
    mean = float(total * unit / count)
    if count < 2:
        return MeanDeviation(mean, None)
    variance = Fraction(count * squares - total * total, count * (count - 1)) * unit * unit
    return MeanDeviation(mean, math.sqrt(variance))


def moments_of_silo(column: Tensor, least: int, *, counted: bool) -> MeanDeviation | None:
    """Return the moments of a silo's numbers, float32 of shape [n]; None if they would be of few.

    Args:
        least: The least count that may be told.
        counted: Whether the column has few different numbers at all silos. Then each of them must occur that
            often, too; so must they if this silo has so few that the moments would be their counts.
    """
    if len(column) < max(least, 2):
        return None
    counts = Counter(column.tolist())
    if (counted or len(counts) <= FOLLOWING) and min(counts.values()) < least:
        return None
    top = exact.power_above(float(column.abs().max()))
    parts = [
        power_sums(column[at : at + exact.BLOCK, None], top) for at in range(0, len(column), exact.BLOCK)
    ]
    sums = torch.stack(parts).sum(0)
    return moments_of(sums[:, 0].tolist(), float(top), len(column))


def apart(silos: Sequence[MeanDeviation], counts: Sequence[int], *, shares: bool = False) -> dict[str, float]:
    """Return how far silos part.

    `smd` is the largest standardised difference of two silos' means (Austin 2009, "Balance diagnostics",
    equation 1). `between` is the share of the sum of squares that lies between silos' means.

    Args:
        silos: The moments of each silo.
        counts: How many numbers each has.
        shares: Whether numbers are zeros and ones. A mean is then a share p, and its variance p (1 - p)
            (equation 2).
    """
    largest = 0.0
    spreads = [math.sqrt(one.mean * (1 - one.mean)) if shares else one.deviation or 0.0 for one in silos]
    for (one, wide), (other, as_wide) in combinations(zip(silos, spreads, strict=True), 2):
        spread = math.hypot(wide, as_wide) / math.sqrt(2)
        gap = abs(one.mean - other.mean)
        largest = max(largest, gap / spread if spread else math.inf if gap else 0.0)
    pairs = list(zip(silos, counts, strict=True))
    mean = math.fsum(n * one.mean for one, n in pairs) / sum(counts)
    between = math.fsum(n * (one.mean - mean) ** 2 for one, n in pairs)
    whole = between + math.fsum((n - 1) * (one.deviation or 0.0) ** 2 for one, n in pairs)
    found = {"smd": largest} if math.isfinite(largest) else {}
    return found | ({"between": between / whole} if whole else {})
