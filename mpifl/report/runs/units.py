"""Round numbers to mark an axis with, and how durations and sizes are written for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

UNITS = ((1, 0.001, "ms"), (100, 1, "s"), (6000, 60, "min"), (math.inf, 3600, "h"))
"""Durations below so many seconds are marked in this unit, which has so many seconds."""
NOTHING = 1e-300
"""Below this a span counts as none: a tenth of it may be 0."""
CUT = 4
"""A first bar of more than so many times the highest of the others is cut."""
Write = Callable[[float], str]
Levels = tuple[list[float], Write]
"""What is marked on an axis, and how it is written there."""


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return about five round numbers, the first not above `low`; the last may lie below `high`."""
    if high - low < NOTHING:
        high = low + (abs(low) if abs(low) > NOTHING else 1.0)
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * (1 - 1e-9))
    return [step * n for n in range(math.floor(low / step + 1e-9), math.floor(high / step + 1e-9) + 1)]


def ticks_log(low: float, high: float) -> list[float]:
    """Return powers of ten, or 1, 2 and 5 times them where few lie between."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if len(powers) > 4 else (1, 2, 5)
    found = [factor * 10.0**power for power in powers for factor in factors]
    return [level for level in found if low <= level <= high] or [low, high]


def highest(tops: Sequence[float]) -> float:
    """Return what bars are drawn up to: a first round, which loads libraries, would flatten the others."""
    rest = max(tops[1:], default=0.0)
    return 1.25 * rest if len(tops) > 4 and tops[0] > CUT * rest > 0 else max(tops)


def clock(most: float) -> Levels:
    """Return durations up to `most` seconds, round in one unit, and how to write them in it."""
    unit, name = next((unit, name) for below, unit, name in UNITS if most < below)
    return [unit * level for level in ticks(0, most / unit)], lambda level: f"{level / unit:g} {name}"


def seconds(value: float) -> str:
    """Write a duration as a person says it."""
    if value < 1:
        return f"{1000 * value:.3g} ms"
    if value < 100:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def size(value: float) -> str:
    """Write a number of bytes as a person says it, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
