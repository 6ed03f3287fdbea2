"""The levels of an axis of times or counts, which a few slow rounds do not stretch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Write = Callable[[float], str]
Levels = tuple[list[float], Write]
CUT = 4
"""A first value of more than so many times the highest of the others is cut."""
USUAL = 0.95
"""The share of the highest values that the axis shows, at least."""


def levels_of_times(
    values: Sequence[Sequence[float]],
    highs: Sequence[float],
    marked: Callable[[float], Levels],
    write: Write,
    along: str,
) -> tuple[Levels, str]:
    """Return the levels of the axis, and a note on what lies above it.

    Args:
        values: Those of each line.
        highs: Where a band behind the lines ends, above.
        marked: Returns the levels up to a value.
        write: Writes a value.
        along: What the other axis counts.
    """
    tops = sorted(highs)
    levels, tell = marked(max([*map(_highest, values), *tops[: math.ceil(USUAL * len(tops))]]))
    beyond = []
    if (first := values[0][0]) > levels[-1]:
        beyond.append(f" The first {along} took {write(first)}, more than the axis shows.")
    if tops and tops[-1] > levels[-1]:
        beyond.append(f" Some took up to {write(tops[-1])}, more than the axis shows.")
    return (levels, tell), "".join(beyond)


def _highest(values: Sequence[float]) -> float:
    """Return what times are drawn up to: a first round, which loads libraries, would flatten the others."""
    rest = max(values[1:], default=0.0)
    return 1.25 * rest if len(values) > 4 and values[0] > CUT * rest > 0 else max(values)
