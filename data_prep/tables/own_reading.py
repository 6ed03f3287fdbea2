"""A site's own way to write a table that a training's spec is to read: names, units and notation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_prep.tables.spec import TableSpec, read_spec
from data_prep.tables.table_column import Column
from mpifl.common import InputError

NOTATION = ("delimiter", "encoding", "decimal", "thousands", "names", "comment", "missing")
"""Keys of a spec that say how a file is written."""
OWN = ("rename", "factor", "format")
"""Keys of a column that do so; a level's spellings do, too."""
LEARNED = ("levels", "mean", "deviation")
"""Keys of a column that a spec may leave to the training."""


def read_as(spec: TableSpec, path: Path, learned: TableSpec) -> TableSpec:
    """Return a spec of new rows that reads a table as a site's own spec does.

    Args:
        spec: What new rows are read by.
        path: The site's own spec.
        learned: The spec of the training.

    Raises:
        InputError: the site's spec cannot be read, or a column differs by more than its name and unit.
    """
    own = read_spec(path)
    if (differs := next(_differing(own, learned), None)) is not None:
        remedy = "use the spec that the site's shard was cut by"
        raise InputError(f"{path}: {differs}; {remedy}")
    told: dict[str, Any] = {key: getattr(own, key) for key in NOTATION}
    told["id"] = own.id if own.id is not None else spec.id
    told["features"] = {
        name: column.model_copy(update=_own_keys(own.features[name]))
        for name, column in spec.features.items()
    }
    return spec.model_copy(update=told)


def _own_keys(column: Column) -> dict[str, Any]:
    """Return what a site's spec says of how its file writes a column."""
    spelled = {"levels": column.levels} if column.levels else {}
    return {**{key: getattr(column, key) for key in OWN}, **spelled}


def _differing(own: TableSpec, learned: TableSpec) -> Iterator[str]:
    """Yield what a site's spec has otherwise than the training's, but for how its file is written."""
    for name in [name for name in own.features if name not in learned.features]:
        yield f"features.{name}: the training has no such column"
    for name, column in learned.features.items():
        if name not in own.features:
            yield f"features.{name}: not there, and the training has it"
            continue
        yield from _of_column(name, own.features[name], column)
    scaled = any(column.deviation is not None for column in own.features.values())
    if own.standardise == "none" and not scaled:
        for name in [name for name, column in learned.features.items() if column.deviation is not None]:
            yield f'standardise: is "none", and the training has standardised {name}'


def _of_column(name: str, own: Column, learned: Column) -> Iterator[str]:
    """Yield what a column has otherwise; what was learned of it may be left out."""
    for key in Column.model_fields:
        ours, theirs = getattr(own, key), getattr(learned, key)
        if key == "levels" and ours and theirs:
            ours, theirs = [one[0] for one in ours], [one[0] for one in theirs]
        if ours == theirs or key in OWN or (key in LEARNED and ours is None):
            continue
        yield f"features.{name}.{key}: {_shown(ours)}, the training has {_shown(theirs)}"


def _shown(value: Any) -> str:
    """Return a value as a message shows it."""
    if isinstance(value, list):
        return ", ".join(value)[:200]
    return "none" if not value else f"{value:g}" if isinstance(value, float) else f"'{value}'"
