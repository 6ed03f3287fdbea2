"""Survival curves of counts over a grid of times, told where times with few rows are joined."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mpifl.wings.analysis import LEVEL
from mpifl.wings.analysis.survival.time_grid import TimeGrid

HALF = 0.5 * (1 + 1e-9)
"""A half, and what rounding may add to it."""
MEDIANS = ("median_from", "first"), ("median", "last"), ("median_low", "first"), ("median_high", "last")
"""Figures of a median, and which end of its span each is."""


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


class Estimate(NamedTuple):
    """The estimate of Kaplan & Meier (1958) at a time.

    Attributes:
        survival: The share that survives.
        low: The lower end of its interval; None where no row survives.
        high: The upper end.
    """

    survival: float
    low: float | None
    high: float | None


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


class ToldCurve(NamedTuple):
    """What is told of a curve.

    Attributes:
        spans: Its spans.
        ends: The estimate of all exact times at the last event of each span.
        halves: The spans in which survival and the ends of its interval come to a half; None of what is not
            reached.
    """

    spans: Sequence[TimeSpan]
    ends: Sequence[Estimate]
    halves: Sequence[int | None] = (None,) * 3

    @classmethod
    def of(cls, events: Sequence[int], censored: Sequence[int], least: int) -> ToldCurve | None:
        """Return the curve of a group; None if its totals are too small. See `spans_of` for what it takes."""
        if (spans := spans_of(events, censored, least)) is None:
            return None
        exact = dict(_estimates(events, censored))
        ends = [exact.get(span.last, Estimate(1.0, 1.0, 1.0)) for span in spans]
        halves = list[int | None]()
        for nth in range(len(Estimate._fields)):
            told = ((cell, one[nth]) for cell, one in exact.items())
            half = next((cell for cell, value in told if value is not None and value <= HALF), None)
            halves.append(None if half is None else sum(1 for span in spans if span.first <= half) - 1)
        return cls(spans, ends, halves)

    @classmethod
    def kept(cls, spans: Sequence[Any], ends: Sequence[Any], halves: Sequence[int | None]) -> ToldCurve:
        """Return a curve that was kept as JSON."""
        return cls([TimeSpan(*one) for one in spans], [Estimate(*one) for one in ends], halves)

    def rows(self, grid: TimeGrid) -> list[dict[str, Any]]:
        """Return a row for each span: its counts, and the estimate at its last event."""
        return [
            {"from": grid.time(span.first), "time": grid.time(span.last)}
            | {key: getattr(span, key) for key in ("at_risk", "events", "censored")}
            | end._asdict()
            for span, end in zip(self.spans, self.ends, strict=True)
        ]

    def medians(self, grid: TimeGrid) -> dict[str, float | None]:
        """Return the first time at which half or fewer survive, and its interval; None of what is not
        reached.

        The interval has the times where the ends of the curve's interval are at a half (Brookmeyer & Crowley
        1982). The median lies between `median_from` and `median`, in one span. The interval reaches
        from the begin of a span to the end of another, so it holds the exact one.
        """
        places = zip(MEDIANS, (self.halves[0], *self.halves), strict=True)
        return {
            key: None if place is None else grid.time(getattr(self.spans[place], at))
            for (key, at), place in places
        }


def _estimates(events: Sequence[int], censored: Sequence[int]) -> Iterator[tuple[int, Estimate]]:
    """Yield the cells with an event, and the estimate at each.

    Intervals are Greenwood's on the scale log(-log S) (Kalbfleisch & Prentice 1980); None where S is 0.
    """
    from scipy import stats

    survival, variance, wide = 1.0, 0.0, float(stats.norm.ppf((1 + LEVEL) / 2))
    at_risk = sum(events) + sum(censored)
    for cell, (died, left) in enumerate(zip(events, censored, strict=True)):
        if died:
            rest = at_risk - died
            survival *= rest / at_risk
            variance += died / (at_risk * rest) if rest else 0.0
            yield cell, Estimate(survival, *_interval(survival, variance, wide))
        at_risk -= died + left


def _interval(survival: float, variance: float, wide: float) -> tuple[float | None, float | None]:
    if survival == 1:
        return 1.0, 1.0
    if survival == 0:
        return None, None
    shift = wide * math.sqrt(variance) / math.log(survival)
    return survival ** math.exp(-shift), survival ** math.exp(shift)
