"""The figures of noised sums over all silos, each with the deviation of its noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mpifl.wings.privacy import GRID, BinCounts, BoundedSum, LevelCounts

if TYPE_CHECKING:
    from mpifl.wings.analysis.dp_table import DPTable

SEEN = 4.0
"""A mean is told where the noised count is more than so many deviations of its noise."""
Figure = dict[str, Any]


def figures_of(of: DPTable, numbers: Sequence[int], squares: float, silos: int) -> list[Figure]:
    """Return the figures: variable, level, figure, value, and the deviation of its noise.

    Those of means, variances and standard deviations are of first order in the noise. All of them follow from
    noised sums alone, so that they cost nothing.

    Args:
        of: The algorithm, which knows the sums.
        numbers: The noised sums over all silos.
        squares: The sum over silos of z^2.
        silos: How many silos there are; the noise of each was rounded.
    """
    parts, at = list[tuple[BoundedSum, list[int], float]](), 0
    for one in of.sums:
        noise = math.sqrt(one.deviation(1.0, len(of.sums)) ** 2 * squares + silos / 12)
        parts.append((one, [*numbers[at : at + one.size]], noise))
        at += one.size
    (_, [rows], noise), *left = parts
    found = [_figure("rows", "", "count", rows, noise)]
    for name in of.categories:
        (one, counts, noise), *left = left
        assert isinstance(one, LevelCounts)
        levels = of.columns.groups[name]
        named = zip([levels[column] for column in one.columns], counts, strict=True)
        found += [_figure(name, level, "count", count, noise) for level, count in named]
    for name, (lower, upper) in of.bounds.items():
        found += _of_numbers(name, lower, upper, left[:3])
        left = left[3:]
        if of.bins:
            (one, counts, noise), *left = left
            assert isinstance(one, BinCounts)
            pairs = zip(_bins(one), counts, strict=True)
            found += [_figure(name, level, "count", count, noise) for level, count in pairs]
    return found


def _figure(variable: str, level: str, figure: str, value: float, noise: float) -> Figure:
    return {"variable": variable, "level": level, "figure": figure, "value": value, "noise": noise}


def _bins(of: BinCounts) -> list[str]:
    """Return the names of the bins, of which the first and the last have no end."""
    ends = ["", *(f"{edge:.7g}" for edge in map(float, of.of.edges(of.bins))), ""]
    return [f"[{low}, {high})" for low, high in itertools.pairwise(ends)]


def _of_numbers(
    name: str, lower: float, upper: float, parts: Sequence[tuple[BoundedSum, list[int], float]]
) -> Iterator[Figure]:
    """Yield the count, sum, mean, variance and standard deviation of a column's clipped numbers.

    A mean is kept within the bounds, and a variance between 0 and a quarter of the squared width.
    """
    (_, [n], by_n), (_, [first], by_first), (_, [second], by_second) = parts
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    yield _figure(name, "", "count", n, by_n)
    total, by_total = middle * n + half * first / GRID, math.hypot(middle * by_n, half * by_first / GRID)
    yield _figure(name, "", "sum", total, by_total)
    if n <= SEEN * by_n:
        return
    u, v = min(max(first / GRID / n, -1.0), 1.0), second / GRID / n
    by_u, by_v = by_first / GRID / n, by_second / GRID / n
    share = by_n / n
    yield _figure(name, "", "mean", middle + half * u, half * math.hypot(by_u, u * share))
    variance = half**2 * min(max(v - u * u, 0.0), 1.0)
    slope = 2 * u * u - v
    by_variance = half**2 * math.sqrt(by_v**2 + (2 * u * by_u) ** 2 + (slope * share) ** 2)
    yield _figure(name, "", "variance", variance, by_variance)
    if variance > by_variance:
        spread = math.sqrt(variance)
        yield _figure(name, "", "deviation", spread, by_variance / (2 * spread))
