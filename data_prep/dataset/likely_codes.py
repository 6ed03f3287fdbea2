"""Numbers of a column that are probably codes for a missing value, as -9 or 999."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from data_prep.dataset.other_units import MOST_NAMED, MOST_ROWS, in_units, number_columns
from data_prep.dataset.spreads import FEWEST, RATIO
from mpifl.data.shards import FederationSpec, open_shard

CODES = (-9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0)
REPEATED = 2
"""How often a code occurs at least."""
NEAR = 1e-3
"""How far a number of float32 may be off the code that it was in the table."""
FAR = 1.5
"""How many times as far as their quartiles all others lie from a code."""
WHOLE = re.compile(r"[+-]?[0-9]+(?:\.0*)?")
"""A whole number as a text."""
MOST_SILOS = 64
"""Silos that are looked at."""


def codes_told(folder: Path, spec: FederationSpec) -> list[str]:
    """Return a line for each column of which a silo repeats a number that looks like a code for a missing
    value. Of a category it is one of CODES among texts, or among numbers far from it.

    Of numbers it is the lowest or highest one of the silo, and lies far from all others, or is the only
    negative one. Up to MOST_ROWS rows of a silo are looked at, evenly spaced.

    Raises:
        ShardError: a shard cannot be read.
    """
    columns, found = number_columns(spec), dict[str, str]()
    for entry in spec.silos[:MOST_SILOS] if columns else ():
        x = open_shard(folder, entry, spec, checksum=False)["train"].arrays["x"]
        if len(x) < FEWEST or not isinstance(x, np.ndarray):
            continue
        rows = np.asarray(x[:: -(-len(x) // MOST_ROWS)][:, [*columns]], np.float64)
        for name, values in zip(columns.values(), in_units(rows, spec, [*columns.values()]).T, strict=True):
            for line in _of_column(name, values, entry.name):
                found.setdefault(name, line)
    told = [*_of_categories(spec), *found.values()]
    more = [f"{len(told) - MOST_NAMED:,} more columns have such numbers"]
    return told[:MOST_NAMED] + (more if len(told) > MOST_NAMED else [])


def _of_categories(spec: FederationSpec) -> Iterator[str]:
    """Yield a line for each column of categories, or label, that has such a code among its values."""
    columns = defaultdict[str, list[str]](list)
    for name in spec.feature_names or ():
        column, is_level, level = name.partition("=")
        columns[column] += [level] if is_level else []
    known = {f"column {column}": levels for column, levels in columns.items()}
    for called, levels in {**known, "the label": list(spec.class_names or ())}.items():
        if codes := codes_among(levels):
            what = f"{called}: {' and '.join(map(repr, codes))} among its values"
            yield f"{what}; is it a code for a missing value? List it in 'missing' of the table's spec"


def codes_among(values: Collection[str]) -> list[str]:
    """Return which values of a category are probably codes for a missing one: numbers of CODES among texts,
    or far from all other numbers."""
    numbers = {value: float(value) for value in values if WHOLE.fullmatch(value)}
    codes = [value for value, number in numbers.items() if number in CODES]
    others = [number for value, number in numbers.items() if value not in codes]
    far = [one for one in codes if all(_is_far(numbers[one], other) for other in others)]
    return far if len(codes) < len({*values}) else []


def _is_far(code: float, other: float) -> bool:
    return other >= 0 if code < 0 else abs(other) * RATIO < code


def _of_column(name: str, values: np.ndarray, silo: str) -> Iterator[str]:
    """Yield a line about a code that is the lowest or the highest of some values."""
    for code, (times, others) in _codes_in(values):
        what = f"{code:g} occurs {times:,} times at {silo}, and all others lie from {others.min():.4g} to "
        yield (
            f"column {name}: {what}{others.max():.4g}; is it a code for a missing value? List it in "
            f"'missing' of the table's spec"
        )


def _codes_in(values: np.ndarray) -> Iterator[tuple[float, tuple[int, np.ndarray]]]:
    """Yield each code that is the lowest or the highest of some values, how often, and the other values."""
    for code in CODES:
        of_code = np.abs(values - code) < NEAR
        others, times = values[~of_code], int(of_code.sum())
        if times < REPEATED or len(others) < FEWEST:
            continue
        low, high = np.quantile(others, [0.25, 0.75])
        near = others.min() if code < 0 else others.max()
        gap = near - code if code < 0 else code - near
        alone = code < 0 <= near
        if gap > 0 and (alone or gap > FAR * (high - low)) and high > low:
            yield code, (times, others)


def codes_of_tables(found: Mapping[tuple[str, str], np.ndarray]) -> list[str]:
    """Return a line for each code of each site, with its columns.

    Args:
        found: The numbers of each column at each site, none of which is missing.
    """
    seen: defaultdict[tuple[str, float], list[tuple[str, int, bool]]] = defaultdict(list)
    for (name, site), values in found.items():
        for code, (times, others) in _codes_in(values):
            seen[site, code].append((name, times, code < 0 <= others.min()))
    return [_of_site(site, code, of) for (site, code), of in seen.items()]


def _of_site(site: str, code: float, of: Sequence[tuple[str, int, bool]]) -> str:
    more = f" and {len(of) - MOST_NAMED:,} more columns" if len(of) > MOST_NAMED else ""
    named = f"{', '.join(name for name, _, _ in of[:MOST_NAMED])}{more}"
    far = "the only negative value there" if all(alone for *_, alone in of) else "far from all other values"
    what = f"{site}: {code:g} occurs {sum(times for _, times, _ in of):,} times in {named}, {far}"
    return f"{what}; is it a missing value? Then add it to the list of the spec: missing = [..., '{code:g}']"
