"""What must be learned of a table before its first row can become numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from data_prep.tables.files import Kept, pieces
from data_prep.tables.spec import TableSpec
from data_prep.tables.table_column import Column
from data_prep.tables.values import MARKS, Gaps, Moments, Piece, check_spellings, moments_of, ordered
from mpifl.common import InputError

MOST_VALUES = 1000


@dataclass
class Survey:
    """What occurs in a table, rows that are dropped left out.

    Attributes:
        levels: The values of the categorical columns whose levels are not stated.
        classes: The values of the label.
        moments: Those of the numeric columns: what a silo may share.
        gaps: The rows that were left out.
    """

    levels: dict[str, set[str]] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)
    moments: Moments = field(default_factory=lambda: Moments(columns={}))
    gaps: Gaps = field(default_factory=Gaps)


def survey(kind: str, path: Path, spec: TableSpec, kept: Kept | None = None) -> Survey:
    """Read a table once, piece by piece, for what occurs in it; `kept` keeps it for the next time."""
    counted = [name for name, column in spec.features.items() if column.counted]
    found = Survey(
        {name: set() for name, c in spec.features.items() if c.kind == "categorical" and not c.levels}
    )
    for every in kept.first(found.gaps) if kept else pieces(kind, path, spec, found.gaps):
        piece = found.gaps.leave_out(every, spec)
        for name, seen in found.levels.items():
            _meet(piece, name, seen, "levels")
            _check_few(path, name, seen, "list them as levels, or make it numeric")
        for name in spec.label.read if spec.open_classes else ():
            _meet(piece, name, found.classes, "classes")
            _check_few(path, name, found.classes, "give a threshold, or make it kind = 'numeric'")
        columns = {name: numbers(piece, name, spec.features[name]) for name in counted}
        found.moments = _added(path, found.moments, columns)
    for name, seen in found.levels.items():
        check_spellings(path, name, "levels", ordered(seen), spec.notation)
    check_spellings(path, "".join(spec.label.read[:1]), "classes", ordered(found.classes), spec.notation)
    return found


def _added(path: Path, moments: Moments, columns: dict[str, np.ndarray]) -> Moments:
    """Add the moments of columns to those so far."""
    try:
        return moments + moments_of(columns)
    except ValidationError:
        largest = max(columns, key=lambda name: np.nanmax(np.abs(columns[name]), initial=0))
        said = f"column '{largest}' has values too large for their squares to be added up"
        raise InputError(f"{path}: {said}; use another unit") from None


def is_needed(spec: TableSpec) -> bool:
    """Whether a spec leaves anything to the table."""
    open_levels = any(column.kind == "categorical" and not column.levels for column in spec.features.values())
    return open_levels or spec.standardise == "own" or bool(learned_of_rows(spec)) or spec.open_classes


def learned_of_rows(spec: TableSpec) -> dict[str, str]:
    """Return the columns whose numbers depend on what else a table holds, though their names do not, and what
    the spec could say of each instead."""
    own, none = spec.standardise == "own", spec.standardise == "none"
    found = {}
    for name, column in spec.features.items():
        if not column.counted and column.encoding == "ordinal" and not column.levels:
            found[name] = "its levels in their order"
        elif own and column.counted and (column.mean is None or column.deviation is None):
            found[name] = 'standardise = ["FILE", ...], the files of data-prep statistics of all sites'
        elif none and column.mean is None and (column.missing == "mean" or column.deviation):
            found[name] = "its mean over all sites, as mean = 5.2; data-prep statistics has sums and counts"
    return found


def numbers(piece: Piece, name: str, column: Column) -> np.ndarray:
    """Return a column of numbers in the unit of the spec, or of dates as days, float64 [m], NaN where a value
    is missing."""
    if column.since is not None:
        return piece.days(name, column.since, column.format)
    values = piece.numbers(name)
    return values if column.factor is None else values * column.factor


def _meet(piece: Piece, name: str, seen: set[str], key: str) -> None:
    """Add the values of a column to those seen; refuse one that programs write for a missing value."""
    texts = piece.columns[name]
    new = set(texts.different[0]) - seen
    if marks := new & MARKS:
        row = int(np.argmax(texts.each(marks.__contains__, False, bool)))
        what = f"{name} is '{texts[row]}', which programs write for a missing value"
        raise InputError(f"{piece.at(row)}: {what}; list it in 'missing' of the spec, or state it in {key}")
    seen |= new


def _check_few(path: Path, name: str, seen: set[str], remedy: str) -> None:
    if len(seen) > MOST_VALUES:
        raise InputError(f"{path}: column '{name}' has over {MOST_VALUES} different values; {remedy}")
