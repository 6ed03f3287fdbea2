"""Points of a line that are too many to be drawn: their ends, or medians, of each few neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

Points = Sequence[tuple[float, float | None]]
MOST_POINTS = 2000
"""Points of a line; of more, each column keeps its lowest and its highest, so that a fall stays one."""


def thinned(points: Points, most: int = MOST_POINTS) -> Points:
    """Return the points; of very many the lowest and the highest of each few neighbours, in their order."""
    if len(points) <= most:
        return points
    step, found = -(-2 * len(points) // most), []
    for start in range(0, len(points), step):
        part = [(value, x) for x, value in points[start : start + step] if value is not None]
        ends = {min(part)[::-1], max(part)[::-1]} if part else {(points[start][0], None)}
        found += sorted(ends, key=lambda point: point[0])
    return found


def medians(points: Points, step: int) -> list[tuple[float, float | None]]:
    """Return the median of each few neighbours, at the first of them, and of the last ones at the end."""
    each = [[value for _, value in part if value is not None] for part in _parts(points, step)]
    return [
        (at, median(part) if part else None) for at, part in zip(_places(points, step), each, strict=True)
    ]


def ends(points: Points, step: int) -> list[tuple[float, float, float]]:
    """Return the lowest and the highest of each few neighbours, where their median is."""
    each = [[value for _, value in part if value is not None] for part in _parts(points, step)]
    found = zip(_places(points, step), each, strict=True)
    return [(at, min(part), max(part)) for at, part in found if part]


def _parts(points: Points, step: int) -> list[Points]:
    """Return parts of nearly the same length, up to `step`."""
    many = -(-len(points) // step)
    edges = [len(points) * nth // many for nth in range(many + 1)]
    return [points[start:end] for start, end in pairwise(edges)]


def _places(points: Points, step: int) -> list[float]:
    return [*(part[0][0] for part in _parts(points, step)[:-1]), points[-1][0]]
