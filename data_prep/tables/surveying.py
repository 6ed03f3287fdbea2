"""What must be learned of a table before its first row can become numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from data_prep.tables.moments import Moments, moments_of
from data_prep.tables.spec import TableSpec
from data_prep.tables.stream import pieces
from mpifl.common import InputError

MOST_VALUES = 1000


@dataclass
class Survey:
    """What occurs in a table, rows that are dropped left out.

    Attributes:
        levels: The values of the categorical columns whose levels are not stated.
        classes: The values of the label.
        moments: Those of the numeric columns: what a silo may share.
    """

    levels: dict[str, set[str]] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)
    moments: Moments = field(default_factory=lambda: Moments(columns={}))


def survey(kind: str, path: Path, spec: TableSpec) -> Survey:
    """Read a table once, piece by piece, for what occurs in it."""
    numeric = [name for name, column in spec.features.items() if column.kind == "numeric"]
    found = Survey(
        {name: set() for name, c in spec.features.items() if c.kind == "categorical" and not c.levels}
    )
    for every in pieces(kind, path, spec):
        piece = every.without_gaps(spec.dropping)
        for name, seen in found.levels.items():
            seen.update(piece.known(name))
            _check_few(path, name, seen, "list them as levels, or make it numeric")
        if spec.threshold is None and spec.classes is None:
            found.classes.update(piece.known(spec.label))
            _check_few(path, spec.label, found.classes, "give a threshold")
        found.moments += moments_of({name: piece.numbers(name) for name in numeric})
    return found


def is_needed(spec: TableSpec) -> bool:
    """Whether a spec leaves anything to the table."""
    columns = spec.features.values()
    open_levels = any(column.kind == "categorical" and not column.levels for column in columns)
    open_means = any(column.missing == "mean" and column.mean is None for column in columns)
    own = spec.standardise == "own" or (spec.standardise == "none" and open_means)
    return open_levels or own or (spec.classes is None and spec.threshold is None)


def _check_few(path: Path, name: str, seen: set[str], remedy: str) -> None:
    if len(seen) > MOST_VALUES:
        raise InputError(f"{path}: column '{name}' has over {MOST_VALUES} different values; {remedy}")
