"""Quartiles of a column at two silos, and whether they differ as those of two units do."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

RATIO = 5.0
"""How many times as large a median is that may be in another unit."""
APART = 4.0
"""How many times as far as the quartiles of either silo two medians lie apart that may be in other units."""
FEWEST = 5
"""Rows without which a silo says nothing of a unit."""
KNOWN = {
    "lb beside kg": 2.2046,
    "cm beside inches": 2.54,
    "cm beside feet": 30.48,
    "g/l beside g/dl, or mm beside cm": 10.0,
    "cm beside m, or % beside shares": 100.0,
    "mg beside g, or g beside kg": 1000.0,
    "glucose in mg/dl beside mmol/l": 18.016,
    "cholesterol in mg/dl beside mmol/l": 38.67,
    "triglycerides in mg/dl beside mmol/l": 88.57,
    "creatinine in umol/l beside mg/dl": 88.42,
    "bilirubin in umol/l beside mg/dl": 17.1,
    "uric acid in umol/l beside mg/dl": 59.48,
    "urea in mg/dl beside mmol/l": 6.006,
    "calcium in mg/dl beside mmol/l": 4.008,
    "mmHg beside kPa": 7.5006,
    "months beside years": 12.0,
    "days beside years": 365.25,
}
"""How many times as large numbers are in another unit."""
SUBSTANCES = {
    "glucose": ("glu", "sugar"),
    "cholesterol": ("chol", "ldl", "hdl"),
    "triglycerides": ("trig",),
    "creatinine": ("crea", "krea"),
    "bilirubin": ("bili",),
    "uric acid": ("uric", "urate", "harns"),
    "urea": ("urea", "bun", "harnst"),
    "calcium": ("calc", "kalz"),
}
"""How words of a column's name begin that has such a substance: other factors are chance there."""
TIMES = ("age", "alter", "year", "month", "day", "time", "dur", "jahr", "monat", "tag")
DECIMAL = (10.0, 100.0, 1000.0)
"""Factors that a column of any name may have, however skewed its values are."""
FIT, WIDEST, ENOUGH = 0.12, 0.25, 20
"""How far all three quartiles may be off such a factor, as a share. That of a named substance may be further
off, where values spread as far. And the rows that a silo needs for it."""
OFF, MOST_OFF, SURE, SHAPE, CLEAR, PLAIN = 0.3, 0.5, 4.0, 3.0, 1.7, 2.2
"""On the log scale: how far medians may be off a factor, and two standard errors at most. How many standard
errors they lie apart at least, and by how many widths may differ. How many widths apart need no known factor,
and how many a small one that the column's name does not suggest."""
SIZES = ("weight", "wt", "gewicht", "mass", "kg", "lb", "height", "length", "size", "cm", "inch")
"""How words of a column's name begin that has the size of a body."""

QUARTILE = 0.6745
"""How many deviations a quartile of the normal distribution is off its mean."""


class Spread(NamedTuple):
    """The quartiles of a column at a silo, and how many rows they are of."""

    silo: str
    low: float
    median: float
    high: float
    rows: int

    @classmethod
    def of(cls, silo: str, values: np.ndarray) -> Spread:
        """Return those of some values, none of which is missing."""
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
        return cls(silo, low, middle, high, len(values))

    @classmethod
    def of_moments(cls, silo: str, mean: float, deviation: float) -> Spread:
        """Return those that rows of a normal distribution have, where no more is known of them than this."""
        return cls(silo, mean - QUARTILE * deviation, mean, mean + QUARTILE * deviation, ENOUGH)

    @classmethod
    def of_positive_moments(cls, silo: str, mean: float, deviation: float, rows: int = ENOUGH) -> Spread:
        """Return those that rows of a log-normal distribution have, whose mean is above 0."""
        log_variance = math.log1p((deviation / mean) ** 2)
        center, half = math.log(mean) - log_variance / 2, QUARTILE * math.sqrt(log_variance)
        return cls(silo, math.exp(center - half), math.exp(center), math.exp(center + half), rows)

    @property
    def width(self) -> float:
        """The difference of the quartiles."""
        return self.high - self.low


def differ(one: Spread, other: Spread, name: str) -> bool:
    """Tell whether two silos, or new rows and a training, may have a column in different units."""
    least, most = sorted((abs(one.median), abs(other.median)))
    steady = all(0 < spread.width < abs(spread.median) for spread in (one, other))
    scaled = one.median * other.median > 0 and steady and most > RATIO * least
    widest = max(one.width, other.width)
    apart = widest > 0 and abs(one.median - other.median) > APART * widest
    known = any(known_factor(one, other, called) for called in ("", name))
    return scaled or apart or known or scaled_by(one, other, name) > 1


def factor_told(name: str, one: Spread, other: Spread) -> str:
    """Say how many times as large a column is at one of two silos, and of which units that is the factor."""
    if unit := known_factor(one, other, name):
        return f"a factor of {KNOWN[unit]:g}, as of {unit}"
    less, more = sorted((abs(one.median), abs(other.median)))
    alike = one.median * other.median > 0
    return f"a factor of about {more / less:.3g}, of no known unit" if alike else ""


def known_factor(one: Spread, other: Spread, name: str) -> str:
    """Return the units of which two silos may have a column of such a name, by a factor; "" if none."""
    less, more = sorted((one, other), key=lambda spread: abs(spread.median))
    if min(one.rows, other.rows) < ENOUGH or 0 in less[1:4] or not less.width:
        return ""
    factors = np.array(more[1:4]) / less[1:4]
    units = [unit for unit in KNOWN if _may_have(name, unit) and _is_plain(name, unit, less)]
    off = {unit: float(np.abs(factors / KNOWN[unit] - 1).max()) for unit in units}
    unit = min(off, key=lambda one: off[one])
    spread = max(one.width / abs(one.median) / 2 for one in (less, more))
    if off[unit] <= (max(FIT, min(WIDEST, spread)) if _of_substance(unit) else FIT):
        return unit
    by = scaled_by(one, other, name)
    return next((known for known in units if KNOWN[known] == by), "")


def scaled_by(one: Spread, other: Spread, name: str) -> float:
    """Return the factor by which positive numbers of two silos differ on the log scale; 1 if none is plain.

    Medians lie 4 standard errors apart, and further than quartiles, and widths of both silos are alike but
    for chance. The factor is over 5, and near one of a power of ten or of the column's substance; or the
    medians lie 1.7 widths apart, and the factor is theirs.
    """
    less, more = sorted((one, other), key=lambda spread: spread.median)
    if less.low <= 0 or more.low <= 0 or min(one.rows, other.rows) < FEWEST:
        return 1.0
    widths = [math.log(spread.high / spread.low) for spread in (less, more)]
    errors = [width / math.sqrt(spread.rows) for width, spread in zip(widths, (less, more), strict=True)]
    error, by = math.hypot(*errors), more.median / less.median
    far, alike = math.log(by), abs(widths[0] - widths[1]) <= max(OFF, SHAPE * error)
    if by <= RATIO or far <= SURE * error or not alike:
        return 1.0
    known = [*DECIMAL, *(KNOWN[unit] for unit in KNOWN if _of_substance(unit) and _may_have(name, unit))]
    near = min(known, key=lambda factor: abs(far - math.log(factor)))
    off, chance = abs(far - math.log(near)), min(MOST_OFF, 2 * error)
    if far > sum(widths) / 2 and off <= max(FIT, chance):
        return near
    is_near = far > sum(widths) / 2 and off <= max(OFF, chance)
    return by if is_near or far > CLEAR * max(widths) else 1.0


def _is_plain(name: str, unit: str, less: Spread) -> bool:
    """Tell whether a factor is more than sites differ by: columns of no known unit often differ by 2 or 3."""
    sizes = any(word.startswith(SIZES) for word in _words(name))
    if sizes or KNOWN[unit] > RATIO or _of_substance(unit) or less.low <= 0:
        return True
    return math.log(KNOWN[unit]) > PLAIN * math.log(less.high / less.low)


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", name.lower())


def _of_substance(unit: str) -> bool:
    return unit.startswith((*SUBSTANCES,))


def converting(name: str, far: Spread, other: Spread) -> float:
    """Return by what numbers at the one silo become as those at the other: a known factor, or that of the
    medians."""
    by = other.median / far.median
    known = KNOWN.get(known_factor(far, other, name), abs(max(by, 1 / by)))
    return known if abs(by) > 1 else 1 / known


def _may_have(name: str, unit: str) -> bool:
    """Tell whether a column of this name may have such units."""
    words = _words(name)
    of = {one for one, begins in SUBSTANCES.items() if any(word.startswith(begins) for word in words)}
    if of or _of_substance(unit):
        return unit.startswith(tuple(of))
    return "years" not in unit or any(word.startswith(TIMES) for word in words)
