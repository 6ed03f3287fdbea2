"""Columns of tables in another unit at a site, or with codes for missing values, before shards are made."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Spread, codes_of_tables, odd_among, spreads_told, told_of_odd, written
from data_prep.tables import Drafted, TableSpec, kind_of, number_columns, pieces, spec_beside

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


MOST_PIECES = 16
"""Pieces of each table that are looked at, the first ones."""
FEWEST = 5
"""Rows without which a site says nothing of a unit."""
NOTATION = ("encoding", "delimiter", "decimal", "thousands", "missing", "names", "silo")
"""Keys of a spec that say how values are written, and whose a row is."""


def units_of_tables(tables: Sequence[Path], drafted: Drafted) -> list[str]:
    """Return a line for each column of numbers that a site may have in another unit than the others, and for
    each number that is probably a code for a missing value.

    Args:
        tables: A table of each site; or one, whose spec may name the column of the site.
        drafted: What is drafted of them.

    Raises:
        InputError: a table cannot be read.
    """
    features = tomllib.loads(drafted.text)["features"]
    kinds = {name: one["kind"] if isinstance(one, dict) else one for name, one in features.items()}
    names = [name for name, kind in kinds.items() if kind == "numeric"]
    if not names:
        return []
    values: defaultdict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    stated: dict[str, dict[str, float]] = {}
    for path in tables:
        spec = _reading(path, names, drafted)
        stated[spec_beside(path).stem] = {name: by for name in names if (by := spec.features[name].factor)}
        for piece in islice(pieces(kind_of(path), path, spec), MOST_PIECES):
            sites, codes = ([spec_beside(path).stem], np.zeros(len(piece), np.int64))
            if spec.silo is not None and len(tables) < 2:
                sites, codes = piece.columns[spec.silo].different
            for name in names:
                numbers = piece.numbers(name) * (spec.features[name].factor or 1.0)
                for at, site in enumerate(sites):
                    own = numbers[codes == at]
                    values[name, site].append(own[np.isfinite(own)])
    whole = {key: np.concatenate(parts) for key, parts in values.items()}
    found: defaultdict[str, list[Spread]] = defaultdict(list)
    for (name, site), own in whole.items():
        if len(own) >= FEWEST:
            found[name].append(Spread.of(site, own))
    return [
        *spreads_told(found, stated),
        *codes_of_tables(whole),
        *_odd(tables, names, drafted, whole),
    ]


def _odd(
    tables: Sequence[Path],
    names: Sequence[str],
    drafted: Drafted,
    found: Mapping[tuple[str, str], np.ndarray],
) -> Iterator[str]:
    """Yield a line for each column of a site in which numbers may be mistakes, with the line of the first."""
    for (name, site), values in found.items():
        if odd := odd_among(name, values):
            where, first = "", values[odd.first]
            path = next((one for one in tables if spec_beside(one).stem == site), tables[0])
            spec = _reading(path, names, drafted)
            for piece in islice(pieces(kind_of(path), path, spec), MOST_PIECES):
                of_piece = np.flatnonzero(piece.numbers(name) * (spec.features[name].factor or 1.0) == first)
                if len(of_piece) and not where:
                    where = f" ({piece.at(int(of_piece[0])).rpartition(': ')[2]})"
            yield told_of_odd(site, name, odd, f"{written(first, None)}{where}")


def _reading(path: Path, names: Sequence[str], drafted: Drafted) -> TableSpec:
    """Return the spec by which columns of a table are read as numbers, in the unit of all sites."""
    beside = drafted.beside.get(path)
    features = number_columns(names, beside)
    if beside:
        return beside.reading(features)
    own = tomllib.loads(drafted.own.get(path, drafted.text))
    kept: dict[str, Any] = {key: own[key] for key in NOTATION if key in own}
    return TableSpec.model_validate({**kept, "features": features, "standardise": "own"})
