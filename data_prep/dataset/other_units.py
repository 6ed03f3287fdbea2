"""Columns that one silo may have in another unit than the others, as mg/dl beside mmol/l."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset.changed_rows import factors_at
from data_prep.dataset.spreads import FEWEST, Spread, converting, differ, factor_told
from mpifl.data import Features
from mpifl.data.shards import FederationSpec, encoding_of, open_shard

MOST_ROWS = 2048
"""Rows of a silo that are looked at, evenly spaced."""
CODES = 2
"""Different numbers of a column that says yes or no."""
MOST_NAMED = 5
"""Columns in as many lines."""
BY_SITE = ("natural", "import")
"""Schemes whose silos are sites; those of others are parts of one table, with one unit."""


def units_told(folder: Path, spec: FederationSpec) -> list[str]:
    """Return a line for each column of numbers that a silo may have in another unit than the others.

    What differs so is said by `spreads_told`. Means and deviations of a table that are known are taken back.

    Raises:
        ShardError: a shard cannot be read.
    """
    columns = number_columns(spec)
    if len(spec.silos) < 2 or not columns or spec.scheme.get("name") not in BY_SITE:
        return []
    found: dict[str, list[Spread]] = {name: [] for name in columns.values()}
    codes: dict[str, dict[str, set[float]]] = {name: {} for name in found}
    for entry in spec.silos:
        x = open_shard(folder, entry, spec, checksum=False)["train"].arrays["x"]
        if len(x) < FEWEST or not isinstance(x, np.ndarray):
            continue
        rows = np.asarray(x[:: -(-len(x) // MOST_ROWS)][:, [*columns]], np.float64)
        for name, values in zip(found, in_units(rows, spec, [*found]).T, strict=True):
            found[name].append(Spread.of(entry.name, values))
            codes[name][entry.name] = {*np.unique(values.round(6))[: CODES + 1].tolist()}
    stated = {entry.name: factors_at(spec.source, entry.name) for entry in spec.silos}
    return [*spreads_told(found, stated), *filter(None, map(_coded, codes, codes.values()))]


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


def spreads_told(
    found: Mapping[str, Sequence[Spread]], stated: Mapping[str, Mapping[str, float]] | None = None
) -> list[str]:
    """Return a line for each column that a silo may have in another unit than the others.

    Two medians differ by a factor of more than 5, and the quartiles of both silos lie closer together than
    their median is large. Or the medians lie over 4 times as far apart as the quartiles of either silo. Or
    both quartiles and the median differ by one of the known factors, however much the values overlap. Or
    positive values differ so on the log scale (`scaled_by`), however skewed they are.

    Args:
        found: The spreads of each column at the silos that have FEWEST rows or more.
        stated: By what the spec of a silo multiplies its columns already.
    """
    factors = {
        name: {silo: own[name] for silo, own in (stated or {}).items() if name in own} for name in found
    }
    told = [line for name, spreads in found.items() for line in _of_column(name, spreads, factors[name])]
    more = [f"{len(told) - MOST_NAMED:,} more columns differ between silos, too"]
    return told[:MOST_NAMED] + (more if len(told) > MOST_NAMED else [])


def number_columns(spec: FederationSpec) -> dict[int, str]:
    """Return the columns of a table of numbers, by their places; those of categories are none."""
    one = spec.features
    if not isinstance(one, Features) or len(one.shape) != 1 or not one.dtype.startswith("float"):
        return {}
    stated = _stated(spec)
    categories = {name for name, column in stated.items() if column.get("kind") != "numeric"}
    names = enumerate(spec.feature_names or ())
    return {at: name for at, name in names if categories.isdisjoint((name, name.partition("=")[0]))}


def numbers_and_days(spec: FederationSpec) -> dict[int, tuple[str, date | None]]:
    """Return the columns of a table of numbers or dates, by their places; of dates with the day that is 0."""
    found: dict[int, tuple[str, date | None]] = {
        at: (name, None) for at, name in number_columns(spec).items()
    }
    for at, name in enumerate(spec.feature_names or ()):
        if (since := _stated(spec).get(name, {}).get("since")) is not None:
            found[at] = name, date.fromisoformat(str(since))
    return found


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


def in_units(rows: np.ndarray, spec: FederationSpec, names: list[str]) -> np.ndarray:
    """Return standardised columns [m, d] in the unit of the table's spec, where this states mean and
    deviation."""
    stated = _stated(spec)
    known = [(one.get("mean"), one.get("deviation")) for one in (stated.get(name, {}) for name in names)]
    scales = [one if all(isinstance(part, int | float) for part in one) else (0.0, 1.0) for one in known]
    mean, deviation = np.array(scales, np.float64).T
    return np.asarray(rows * deviation + mean)


def _of_column(name: str, spreads: Sequence[Spread], stated: Mapping[str, float]) -> Iterator[str]:
    """Yield a line about the silo whose median is farthest off, if it may have another unit."""
    if len(spreads) < 2:
        return
    middle = sorted(spreads, key=lambda one: one.median)[(len(spreads) - 1) // 2]
    odd = [one for one in spreads if differ(one, middle, name)]
    if odd:
        far = max(odd, key=lambda one: abs(one.median - middle.median))
        medians = ", ".join(f"{one.median:.3g} at {one.silo}" for one in (middle, far))
        more = f" and {len(odd) - 1:,} more" if len(odd) > 1 else ""
        known = f"; {factor}" if (factor := factor_told(name, far, middle)) else ""
        by = converting(name, far, middle) * stated.get(far.silo, 1.0)
        now = f", in place of {stated[far.silo]:g}" if far.silo in stated else ""
        known += f": factor = {by:.5g} at {far.silo}{now}" if factor else ""
        remedy = f"{name} = {{ kind = 'numeric', factor = ... }} in a site's spec converts"
        yield f"column {name}: median {medians}{more}; are the units the same? {remedy}{known}"
