"""A histogram whose bars have the width of their bins, and as many rows as their area."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from mpifl.common.pages import Figure, Mark, Place, Plot, charts
from mpifl.report.results.days import written

WIDE, HIGH = 1000, 100
PALE = 0.5
"""How strong the bars of all rows below and above the edges are."""
MOST_NAMED, ON_PHONE = 70, 30
"""Characters of edges below a drawing, and of those on a phone."""
EQUAL = 1e-6
PALER = "The paler bars are all rows below and above."
AREAS = "Bins differ in width: the area of a bar is its rows."


def histogram(name: str, told: Mapping[str, Sequence[Any]], since: str = "") -> Figure:
    """Draw how many rows lie between edges, below the first and above the last.

    Args:
        told: The edges, and the counts of all bins.
        since: The day that is 0 of a column of dates; "" of another column.
    """
    edges, counts = told["edges"], told["counts"]
    step = min((high - low for low, high in itertools.pairwise(edges)), default=1.0)
    ends = [edges[0] - step, *edges, edges[-1] + step]
    heights = [
        count * step / (high - low)
        for count, (low, high) in zip(counts, itertools.pairwise(ends), strict=True)
    ]
    x, levels = charts.Scale(ends[0], ends[-1]), charts.ticks(0, max(*heights, 1), 3)
    y, texts = charts.Scale(0, levels[-1]), [written(edge, since) for edge in edges]
    names = [f"below {texts[0]}", *map(" to ".join, itertools.pairwise(texts)), f"{texts[-1]} or more"]
    strengths = [PALE, *[1.0] * (len(counts) - 2), PALE]
    each = zip(names, counts, heights, itertools.pairwise(ends), strengths, strict=True)
    marks = [
        Mark("area one", _bar(x(low), x(high), y(height)), f"{called}: {count:,}", strength)
        for called, count, height, (low, high), strength in each
        if count
    ]
    uneven = any(high - low > step * (1 + EQUAL) for low, high in itertools.pairwise(edges))
    note = f"{AREAS} {PALER}" if uneven else PALER
    size = f"{step:.6g} days" if since else f"{step:.6g}"
    whole = charts.beside(y, [one for one in levels if one == round(one)], "{:,.0f}".format)
    what = f"rows by {name}, {min(counts):,} to {max(counts):,} in a bin"
    drawn = Plot(what, marks, (WIDE, HIGH), levels=whole, ticks=_ticks([*map(x, edges)], texts),
                 unit=f"{name}; height: rows in each {size}", high=110)  # fmt: skip
    return Figure(name, note, [drawn])


def _bar(left: float, right: float, high: float) -> str:
    gap = 0.06 * (right - left)
    return f"M{WIDE * (left + gap):.1f} {HIGH}V{HIGH * (1 - high):.2f}H{WIDE * (right - gap):.1f}V{HIGH}Z"


def _ticks(places: Sequence[float], texts: Sequence[str]) -> list[Place]:
    """Name as many edges as have room; on a phone, where there is less, fewer."""
    wide = max(map(len, texts)) + 2
    desk, phone = (max(room // wide, 1) for room in (MOST_NAMED, ON_PHONE))
    step = -(-len(texts) // desk)
    shown = [*zip(places, texts, strict=True)][::step]
    spared = -(-len(shown) // phone)
    return [Place(100 * at, text, nth % spared > 0) for nth, (at, text) in enumerate(shown)]
