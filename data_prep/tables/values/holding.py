"""The columns of a table that every row must have: whose it is, its place in the order, its split."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np

from data_prep.tables.values.dates import LIKELY, days_of, example, forms_of, likeliest
from data_prep.tables.values.piece import MARKS, Piece
from data_prep.tables.values.texts import Texts
from mpifl.common import InputError

Named = tuple[Sequence[str], np.ndarray]
"""Names, some of which may be alike, and which of them each row has, int64 [m]."""
FIRST = date(1970, 1, 1)
HELD = {"1": 1, "true": 1, "test": 1, "0": 0, "false": 0, "train": 0}
"""What a column of splits may hold, in any case."""


def keys_of(piece: Piece, what: str, name: str | None, *, marked: bool) -> Named:
    """Return whose each row is by a column; nothing where no column says it.

    Args:
        piece: The rows.
        what: What the column says: silo or group.
        name: The column.
        marked: Whether the spec says which marks stand for a missing value.

    Raises:
        InputError: a row has none, or a mark of none of which the spec says nothing.
    """
    if name is None:
        return [], np.zeros(0, np.int64)
    texts = _whole(piece, name, f"the {what}")
    if not marked and not MARKS.isdisjoint(texts.different[0]):
        row = int(np.argmax(texts.each(MARKS.__contains__, False, bool)))
        found = f"{name}, the {what}, is '{texts[row]}', which programs write for a missing one"
        remedy = f"list it in 'missing' of the spec, or say missing = [\"\"] there if it is a {what}"
        raise InputError(f"{piece.at(row)}: {found}; {remedy}")
    return texts.different


class Places:
    """The places of a table's rows in their order, by a column of numbers or of dates; the first says which.

    Args:
        name: The column; None where none says it.
        form: How it writes dates, if the spec says so.
    """

    def __init__(self, name: str | None, form: str | None = None) -> None:
        self._name, self._form = name, form
        self._of_dates: bool | None = None

    def of(self, piece: Piece) -> np.ndarray:
        """Return those of some rows, of dates as days, float64 [m]; nothing where no column says it.

        Raises:
            InputError: a row has none, or it is not what those before are.
        """
        if self._name is None:
            return np.zeros(0)
        texts = _whole(piece, self._name, "the order")
        if self._of_dates is None and len(texts):
            self._of_dates = self._form is not None or self._is_date(piece, texts[0] or "")
        return piece.days(self._name, FIRST, self._form) if self._of_dates else piece.numbers(self._name)

    def _is_date(self, piece: Piece, first: str) -> bool:
        """Tell whether the first value is a date; refuse one whose form nobody has stated."""
        if not np.isnan(days_of(first, FIRST)):
            return True
        if forms := likeliest(forms_of([first], LIKELY)):
            what = f"{self._name} is '{first}', no number and no date as {example(None)}"
            known = " or ".join(f'order_format = "{form}"' for form in forms)
            raise InputError(f'{piece.at(0)}: {what}; say order = "{self._name}" and {known} in the spec')
        return False


def held_of(piece: Piece, name: str | None) -> np.ndarray:
    """Return which rows are for testing by a column of splits, bool [m]; nothing where no column says it.

    Raises:
        InputError: a row has none, or another than there are.
    """
    if name is None:
        return np.zeros(0, bool)
    texts = _whole(piece, name, "held_out")
    held = texts.each(lambda text: HELD.get(text.lower(), -1), -1, np.int64)
    if (unknown := held < 0).any():
        row = int(np.argmax(unknown))
        what = f"{name} is '{texts[row]}'"
        raise InputError(f"{piece.at(row)}: {what}; held_out takes 1 or 0, true or false, test or train")
    return held.astype(bool)


def _whole(piece: Piece, name: str, what: str) -> Texts:
    """Return a column that every row has a value of."""
    if (texts := piece.columns[name]).lacking:
        where = piece.at(int(np.argmax(texts.gaps)))
        raise InputError(f"{where}: {name}, {what}, is missing; fill it in or remove the row")
    return texts
