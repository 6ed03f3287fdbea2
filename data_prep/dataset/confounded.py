"""Levels and classes that one site alone has, which a model cannot tell from the site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.dataset.other_units import BY_SITE
from mpifl.data import Features
from mpifl.data.shards import FederationSpec, encoding_of, open_shard

MOST_LEVELS = 10
"""Levels of a column that is looked at; of more, some are rare and at one site by chance."""


def lone_levels(folder: Path, spec: FederationSpec) -> list[str]:
    """Return a line for the label, and for each column of a table, with a level at one site alone, which
    lacks a level of all others.

    Raises:
        ShardError: a shard cannot be read.
    """
    columns = _levels(spec)
    if len(spec.silos) < 2 or spec.scheme.get("name") not in BY_SITE:
        return []
    lines = [*_of_column("label", _classes(spec))]
    if not columns:
        return lines
    found: dict[str, dict[str, set[str]]] = {name: {} for name in columns}
    for entry in spec.silos:
        splits = open_shard(folder, entry, spec, checksum=False).splits.values()
        rows = [x for x in (split.arrays["x"] for split in splits) if isinstance(x, np.ndarray) and len(x)]
        for name, levels in columns.items():
            there = np.any([np.any(x[:, [*levels.values()]] != 0, axis=0) for x in rows], axis=0)
            found[name][entry.name] = {level for level, one in zip(levels, there, strict=True) if one}
    return lines + [line for name, of in found.items() for line in _of_column(f"column {name}", of)]


def _classes(spec: FederationSpec) -> dict[str, set[str]]:
    """Return the classes that each site trains on, of a table with few classes."""
    names, record = spec.class_names or (), encoding_of(spec.source) or {}
    if record.get("kind") != "table" or not 0 < len(names) <= MOST_LEVELS:
        return {}
    return {
        entry.name: {name for name, count in zip(names, entry.labels, strict=True) if count}
        for entry in spec.silos
    }


def _levels(spec: FederationSpec) -> dict[str, dict[str, int]]:
    """Return the places of the columns of 0 and 1 that each category became, by its levels."""
    one, record = spec.features, encoding_of(spec.source) or {}
    if not isinstance(one, Features) or len(one.shape) != 1 or record.get("kind") != "table":
        return {}
    told = record["spec"].get("features")
    categories = {
        name for name, column in (told.items() if isinstance(told, dict) else ())
        if isinstance(column, dict) and column.get("kind") == "categorical"
    }  # fmt: skip
    found: dict[str, dict[str, int]] = {}
    for at, name in enumerate(spec.feature_names or ()):
        column = next((column for column in categories if name.startswith(f"{column}=")), None)
        if column is not None:
            found.setdefault(column, {})[name.removeprefix(f"{column}=")] = at
    return {column: levels for column, levels in found.items() if len(levels) <= MOST_LEVELS}


def _of_column(name: str, found: dict[str, set[str]]) -> Iterator[str]:
    """Yield a line about the first site that has a level alone and lacks one of all others."""
    for site, own in found.items():
        others = [levels for other, levels in found.items() if other != site]
        alone, lacks = own.difference(*others), set.intersection(*others) - own
        if alone and lacks:
            here, there = (", ".join(f"'{level}'" for level in sorted(of)) for of in (alone, lacks))
            what = f"{name}: {site} alone has {here}, and lacks {there}, which all others have"
            to_do = "write in one [ ] what means the same, or code it alike"
            yield f"{what}; a model cannot tell it from the site; {to_do}"
            return
