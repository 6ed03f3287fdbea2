"""Columns that one silo may have in another unit than the others, as mg/dl beside mmol/l."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpifl.data import Features
from mpifl.data.shards import FederationSpec, encoding_of, open_shard

RATIO = 5.0
"""How many times as large a median is that may be in another unit."""
APART = 4.0
"""How many times as far as the quartiles of either silo two medians lie apart that may be in other units."""
FEWEST = 5
"""Rows without which a silo says nothing of a unit."""
MOST_ROWS = 2048
"""Rows of a silo that are looked at, evenly spaced."""
CODES = 2
"""Different numbers of a column that says yes or no."""
MOST_NAMED = 5
"""Columns in as many lines."""
BY_SITE = ("natural", "import")
"""Schemes whose silos are sites; those of others are parts of one table, with one unit."""


KNOWN = {
    "lb beside kg": 2.2046,
    "cm beside inches": 2.54,
    "cm beside feet": 30.48,
    "mm beside cm": 10.0,
    "g/l beside g/dl, or % beside shares": 100.0,
    "grams beside kg": 1000.0,
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
FIT, WIDEST, ENOUGH = 0.12, 0.25, 20
"""How far all three quartiles may be off such a factor, as a share. That of a named substance may be further
off, where values spread as far. And the rows that a silo needs for it."""

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

    @property
    def width(self) -> float:
        """The difference of the quartiles."""
        return self.high - self.low


def units_told(folder: Path, spec: FederationSpec) -> list[str]:
    """Return a line for each column of numbers that a silo may have in another unit than the others.

    What differs so is said by `spreads_told`. Means and deviations of a table that are known are taken back.

    Raises:
        ShardError: a shard cannot be read.
    """
    columns = _columns(spec)
    if len(spec.silos) < 2 or not columns or spec.scheme.get("name") not in BY_SITE:
        return []
    found: dict[str, list[Spread]] = {name: [] for name in columns.values()}
    codes: dict[str, dict[str, set[float]]] = {name: {} for name in found}
    for entry in spec.silos:
        x = open_shard(folder, entry, spec, checksum=False)["train"].arrays["x"]
        if len(x) < FEWEST or not isinstance(x, np.ndarray):
            continue
        rows = np.asarray(x[:: -(-len(x) // MOST_ROWS)][:, [*columns]], np.float64)
        for name, values in zip(found, _in_units(rows, spec, [*found]).T, strict=True):
            found[name].append(Spread.of(entry.name, values))
            codes[name][entry.name] = {*np.unique(values.round(6))[: CODES + 1].tolist()}
    return [*spreads_told(found), *filter(None, map(_coded, codes, codes.values()))]


def _coded(name: str, of: Mapping[str, set[float]]) -> str:
    """Return a line on a column of which each silo has up to two numbers, as 0 and 1, and one has others."""
    every = set().union(*of.values())
    if max(map(len, of.values()), default=0) != CODES or len(every) <= CODES:
        return ""
    own = max(of.values(), key=len)
    pair = [next(silo for silo in of if of[silo] == own), next(silo for silo in of if not of[silo] <= own)]
    told = (f"{', '.join(f'{one:g}' for one in sorted(of[silo]))} at {silo}" for silo in pair)
    return (
        f"column {name}: {' and '.join(told)}; is it coded alike? Correct the table, or make it categorical"
    )


def spreads_told(found: Mapping[str, Sequence[Spread]]) -> list[str]:
    """Return a line for each column that a silo may have in another unit than the others.

    Two medians differ by a factor of more than 5, and the quartiles of both silos lie closer together than
    their median is large. Or the medians lie over 4 times as far apart as the quartiles of either silo. Or
    both quartiles and the median differ by one of the factors in KNOWN, however much the values overlap.

    Args:
        found: The spreads of each column at the silos that have FEWEST rows or more.
    """
    told = [line for name, spreads in found.items() for line in _of_column(name, spreads)]
    more = [f"{len(told) - MOST_NAMED:,} more columns differ as much between silos"]
    return told[:MOST_NAMED] + (more if len(told) > MOST_NAMED else [])


def _columns(spec: FederationSpec) -> dict[int, str]:
    """Return the columns of a table of numbers, by their places; those of categories are none."""
    one = spec.features
    if not isinstance(one, Features) or len(one.shape) != 1 or not one.dtype.startswith("float"):
        return {}
    stated = _stated(spec)
    categories = {name for name, column in stated.items() if column.get("kind") != "numeric"}
    names = enumerate(spec.feature_names or ())
    return {at: name for at, name in names if categories.isdisjoint((name, name.partition("=")[0]))}


def _stated(spec: FederationSpec) -> dict[str, dict[str, Any]]:
    """Return what the spec of a table says of each column; nothing where it is not known."""
    record = encoding_of(spec.source) or {}
    if record.get("kind") == "arrays" and isinstance(record.get("columns"), dict):
        return {name: _of_moments(one) for name, one in record["columns"].items()}
    told = record["spec"].get("features") if record.get("kind") == "table" else None
    features = told.items() if isinstance(told, dict) else ()
    return {name: one for name, one in features if isinstance(one, dict)}


def _of_moments(known: Any) -> dict[str, Any]:
    """Return mean and deviation of a column of arrays as the spec of a table has them."""
    both = known if isinstance(known, list) and len(known) == 2 else [None, None]
    return {"kind": "numeric", "mean": both[0], "deviation": both[1]}


def _in_units(rows: np.ndarray, spec: FederationSpec, names: list[str]) -> np.ndarray:
    """Return standardised columns [m, d] in the unit of the table's spec, where this states mean and
    deviation."""
    stated = _stated(spec)
    known = [(one.get("mean"), one.get("deviation")) for one in (stated.get(name, {}) for name in names)]
    scales = [one if all(isinstance(part, int | float) for part in one) else (0.0, 1.0) for one in known]
    mean, deviation = np.array(scales, np.float64).T
    return np.asarray(rows * deviation + mean)


def _of_column(name: str, spreads: Sequence[Spread]) -> Iterator[str]:
    """Yield a line about the silo whose median is farthest off, if it may have another unit."""
    if len(spreads) < 2:
        return
    middle = sorted(spreads, key=lambda one: one.median)[(len(spreads) - 1) // 2]
    odd = [one for one in spreads if differ(one, middle)]
    if odd:
        far = max(odd, key=lambda one: abs(one.median - middle.median))
        medians = ", ".join(f"{one.median:.3g} at {one.silo}" for one in (middle, far))
        more = f" and {len(odd) - 1:,} more" if len(odd) > 1 else ""
        known = f"; the factor is {factor}" if (factor := factor_told(name, far, middle)) else ""
        known += f": factor = {_factor(name, far, middle):.5g} at {far.silo}" if factor else ""
        remedy = f"{name} = {{ kind = 'numeric', factor = ... }} in a site's spec converts"
        yield f"column {name}: median {medians}{more}; are the units the same? {remedy}{known}"


def differ(one: Spread, other: Spread) -> bool:
    """Tell whether two silos, or new rows and a training, may have a column in different units."""
    least, most = sorted((abs(one.median), abs(other.median)))
    steady = all(0 < spread.width < abs(spread.median) for spread in (one, other))
    scaled = one.median * other.median > 0 and steady and most > RATIO * least
    widest = max(one.width, other.width)
    apart = widest > 0 and abs(one.median - other.median) > APART * widest
    return scaled or apart or bool(known_factor(one, other))


def factor_told(name: str, one: Spread, other: Spread) -> str:
    """Say how many times as large a column is at one of two silos, and of which units that is the factor."""
    if unit := known_factor(one, other, name):
        return f"that of {unit}"
    less, more = sorted((abs(one.median), abs(other.median)))
    alike = one.median * other.median > 0
    return f"about {more / less:.3g}, that of no known unit" if alike else ""


def known_factor(one: Spread, other: Spread, name: str | None = None) -> str:
    """Return the units of which two silos may have a column, by a factor of all quartiles; "" if none.

    Of a column with a `name` it is one that such a column may have.
    """
    less, more = sorted((one, other), key=lambda spread: abs(spread.median))
    if min(one.rows, other.rows) < ENOUGH or 0 in less[1:4] or not less.width:
        return ""
    factors = np.array(more[1:4]) / less[1:4]
    units = [unit for unit in KNOWN if name is None or _may_have(name, unit)]
    off = {unit: float(np.abs(factors / KNOWN[unit] - 1).max()) for unit in units}
    unit = min(off, key=lambda one: off[one])
    spread = max(one.width / abs(one.median) / 2 for one in (less, more))
    of_substance = name is not None and unit.startswith((*SUBSTANCES,))
    return unit if off[unit] <= (max(FIT, min(WIDEST, spread)) if of_substance else FIT) else ""


def _factor(name: str, far: Spread, other: Spread) -> float:
    """Return by what numbers at the one silo become as those at the other: a known factor, or that of the
    medians."""
    by = other.median / far.median
    known = KNOWN.get(known_factor(far, other, name), abs(max(by, 1 / by)))
    return known if abs(by) > 1 else 1 / known


def _may_have(name: str, unit: str) -> bool:
    """Tell whether a column of this name may have such units."""
    words = re.findall(r"[^\W\d_]+", name.lower())
    of = {one for one, begins in SUBSTANCES.items() if any(word.startswith(begins) for word in words)}
    if of or unit.startswith((*SUBSTANCES,)):
        return unit.startswith(tuple(of))
    return "years" not in unit or any(word.startswith(TIMES) for word in words)
