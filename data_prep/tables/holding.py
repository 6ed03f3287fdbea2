"""The columns of a table that every row must have: whose it is, its place in the order, its split."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np

from data_prep.tables.piece import MARKS, Piece, days_of
from mpifl.common import InputError

FIRST = date(1970, 1, 1)
HELD = {"1": True, "true": True, "test": True, "0": False, "false": False, "train": False}
"""What a column of splits may hold, in any case."""


def keys_of(piece: Piece, what: str, name: str | None, *, marked: bool) -> Sequence[str]:
    """Return whose each row is by a column [m]; nothing where no column says it.

    Args:
        piece: The rows.
        what: What the column says: silo or group.
        name: The column.
        marked: Whether the spec says which marks stand for a missing value.

    Raises:
        InputError: a row has none, or a mark of none of which the spec says nothing.
    """
    if name is None:
        return []
    values = _whole(piece, name, f"the {what}")
    if not marked and (marks := MARKS.intersection(values)):
        row = next(row for row, value in enumerate(values) if value in marks)
        found = f"{name}, the {what}, is '{values[row]}', which programs write for a missing one"
        remedy = f"list it in 'missing' of the spec, or say missing = [\"\"] there if it is a {what}"
        raise InputError(f"{piece.at(row)}: {found}; {remedy}")
    return values


class Places:
    """The places of a table's rows in their order, by a column of numbers or of dates; the first says which.

    Args:
        name: The column; None where none says it.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._of_dates: bool | None = None

    def of(self, piece: Piece) -> np.ndarray:
        """Return those of some rows, of dates as days, float64 [m]; nothing where no column says it.

        Raises:
            InputError: a row has none, or it is not what those before are.
        """
        if self._name is None:
            return np.zeros(0)
        values = _whole(piece, self._name, "the order")
        if self._of_dates is None and values:
            self._of_dates = not np.isnan(days_of(values[0], FIRST))
        return piece.days(self._name, FIRST) if self._of_dates else piece.numbers(self._name)


def held_of(piece: Piece, name: str | None) -> np.ndarray:
    """Return which rows are for testing by a column of splits, bool [m]; nothing where no column says it.

    Raises:
        InputError: a row has none, or another than there are.
    """
    if name is None:
        return np.zeros(0, bool)
    values = [value.lower() for value in _whole(piece, name, "held_out")]
    if unknown := [row for row, value in enumerate(values) if value not in HELD]:
        what = f"{name} is '{piece.columns[name][unknown[0]]}'"
        raise InputError(
            f"{piece.at(unknown[0])}: {what}; held_out takes 1 or 0, true or false, test or train"
        )
    return np.array([HELD[value] for value in values], bool)


def _whole(piece: Piece, name: str, what: str) -> Sequence[str]:
    """Return a column that every row has a value of."""
    values = piece.columns[name]
    if None in values:
        where = piece.at(values.index(None))
        raise InputError(f"{where}: {name}, {what}, is missing; fill it in or remove the row")
    return piece.known(name)
