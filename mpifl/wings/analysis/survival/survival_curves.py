"""Survival curves of counts over a grid of times, after times with few rows were joined."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from mpifl.wings.analysis import LEVEL
from mpifl.wings.analysis.survival.time_grid import TimeGrid

HALF = 0.5 * (1 + 1e-9)
"""A half, and what rounding may add to it."""


class TimeSpan(NamedTuple):
    """A span of time from the cell of an event, or from 0, up to the next span.

    Attributes:
        first: Its first cell.
        last: Its last cell with an event; `first` if it has none.
        at_risk: How many rows are at risk when it begins.
        events: How many events it has.
        censored: How many rows are censored in it.
    """

    first: int
    last: int
    at_risk: int
    events: int
    censored: int

    @property
    def exposed(self) -> float:
        """The rows at risk. Where times are joined, those censored count half (Cutler & Ederer 1958)."""
        return self.at_risk - self.censored / 2 if self.last > self.first else self.at_risk


def spans_of(events: Sequence[int], censored: Sequence[int], least: int) -> list[TimeSpan] | None:
    """Return the spans of a group that may be told; None if its totals are too small.

    Each span has no event or `least` and more, and so for rows that are censored. A span is longer only where
    a shorter one would have fewer.

    Args:
        events: How many rows have their event in each cell.
        censored: How many rows are censored in each cell.
        least: The least number of rows that a count is of.
    """
    found, at_risk = list[TimeSpan](), sum(events) + sum(censored)
    starts = [cell for cell, count in enumerate(events) if count]
    if sum(censored[: starts[0] if starts else len(events)]):
        starts.insert(0, 0)
    rest: TimeSpan | None = None
    for first, end in itertools.pairwise([*starts, len(events)]):
        part = TimeSpan(first, first, at_risk, events[first], sum(censored[first:end]))
        at_risk -= part.events + part.censored
        rest = _joined(rest, part) if rest else part
        if _may_be_told(rest, least):
            found.append(rest)
            rest = None
    if not rest:
        return found
    for place in reversed(range(len(found))):
        rest = _joined(found[place], rest)
        if _may_be_told(rest, least):
            return [*found[:place], rest]
    return None


def _joined(one: TimeSpan, other: TimeSpan) -> TimeSpan:
    """Return a span and the next one as one."""
    counts = one.events + other.events, one.censored + other.censored
    return TimeSpan(one.first, other.last, one.at_risk, *counts)


def _may_be_told(span: TimeSpan, least: int) -> bool:
    return not any(0 < count < least for count in (span.events, span.censored))


def curve_of(spans: Sequence[TimeSpan], grid: TimeGrid) -> list[dict[str, Any]]:
    """Return the curve of Kaplan & Meier (1958), a row for each span.

    Intervals are Greenwood's on the scale log(-log S) (Kalbfleisch & Prentice 1980); None where S is 0.
    """
    from scipy import stats

    survival, variance, wide = 1.0, 0.0, float(stats.norm.ppf((1 + LEVEL) / 2))
    found = []
    for span in spans:
        exposed, rest = span.exposed, span.exposed - span.events
        survival *= rest / exposed
        variance += span.events / (exposed * rest) if rest else 0.0
        low, high = _interval(survival, variance, wide)
        row = {"from": grid.time(span.first), "time": grid.time(span.last), "at_risk": span.at_risk}
        row |= {"events": span.events, "censored": span.censored, "survival": survival}
        found.append({**row, "low": low, "high": high})
    return found


def _interval(survival: float, variance: float, wide: float) -> tuple[float | None, float | None]:
    if survival == 1:
        return 1.0, 1.0
    if survival == 0:
        return None, None
    shift = wide * math.sqrt(variance) / math.log(survival)
    return survival ** math.exp(-shift), survival ** math.exp(shift)


def median_of(curve: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Return the first time at which half or fewer survive, and its interval; None of what is not reached.

    The interval has the times where the ends of the curve's interval are at a half (Brookmeyer & Crowley
    1982). In joined times the median lies between `median_from` and `median`.
    """
    return {
        "median_from": _reached(curve, "survival", "from"),
        "median": _reached(curve, "survival", "time"),
        "median_low": _reached(curve, "low", "from"),
        "median_high": _reached(curve, "high", "time"),
    }


def _reached(curve: Sequence[dict[str, Any]], key: str, at: str) -> float | None:
    return next((row[at] for row in curve if row[key] is not None and row[key] <= HALF), None)
