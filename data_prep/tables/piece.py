"""Some rows of a table as text: what stands where, and which numbers it means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np

from data_prep.tables.notation import OTHERS, PLAIN, Notation
from mpifl.common import InputError

CLOCK = r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d{1,9})?))?"
ZONE = r"(Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)"
DATE = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)(?:[T ]{CLOCK}{ZONE}?)?", re.ASCII)
"""A date as ISO 8601 writes it, perhaps with a time of day, and this with its zone."""
MISSING = (
    *("", "?", ".", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "Null", "null", "None"),
    *("#N/A", "#N/A N/A", "#NA", "#NULL!", "#DIV/0!", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""What programs write for a missing value: what pandas takes, and the marks of SAS, Excel and the UCI."""
MARKS = frozenset(MISSING)


@dataclass(frozen=True)
class Piece:
    """Some rows of a table.

    Attributes:
        where: The file and what its rows are counted in, as messages name it: `file.csv: line`.
        columns: The values [m] of every wanted column, as text; None is a missing value.
        places: The number of each row [m].
        notation: How numbers are written.
        full: Columns of which it is known that they lack no value: to look for one takes a while.
    """

    where: str
    columns: Mapping[str, Sequence[str | None]]
    places: Sequence[int]
    notation: Notation = PLAIN
    full: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.places)

    def at(self, row: int) -> str:
        """Return where a row stands, as messages name it."""
        return f"{self.where} {self.places[row]}"

    def without_gaps(self, names: Iterable[str]) -> Piece:
        """Leave out the rows in which one of these columns lacks its value."""
        gappy = [self.columns[name] for name in names if name not in self.full]
        gaps = {row for values in gappy for row, value in enumerate(values) if value is None}
        if not gaps:
            return self
        kept = [row for row in range(len(self)) if row not in gaps]
        columns = {name: [values[row] for row in kept] for name, values in self.columns.items()}
        return replace(self, columns=columns, places=[self.places[row] for row in kept])

    def known(self, name: str) -> list[str]:
        """Return the values of a column that are not missing."""
        return [value for value in self.columns[name] if value is not None]

    def numbers(self, name: str) -> np.ndarray:
        """Return a column as float64 [m], NaN where a value is missing; refuse what is no finite number."""
        values = self.columns[name]
        numbers = parsed(values if self.notation == PLAIN else self._plain(values))
        unknown = np.flatnonzero(~np.isfinite(numbers)).tolist()
        if wrong := [row for row in unknown if values[row] is not None]:
            row = wrong[0]
            what = f"{name} is '{values[row]}', not a finite number"
            remedy = f"correct it, or list it in 'missing' of the spec{self._otherwise(values[row] or '')}"
            raise InputError(f"{self.at(row)}: {what}; {remedy}")
        return numbers

    def _plain(self, values: Sequence[str | None]) -> list[str | None]:
        """Return numbers as Python writes them, "" for what is none."""
        return [value and self.notation.plain(value) for value in values]

    def _otherwise(self, text: str) -> str:
        """Return the keys of a spec by which a text is a number, for a message."""
        found = next((other for other in (PLAIN, *OTHERS) if other.plain(text)), self.notation)
        return f", or say {' and '.join(found.written())}" if found not in (self.notation, PLAIN) else ""

    def days(self, name: str, since: date) -> np.ndarray:
        """Return a column of dates as days since another, float64 [m], NaN where a value is missing."""
        values = self.columns[name]
        days = np.array([np.nan if value is None else days_of(value, since) for value in values], np.float64)
        if wrong := [row for row in np.flatnonzero(np.isnan(days)).tolist() if values[row] is not None]:
            what = f"{name} is '{values[wrong[0]]}', not a date as 2000-12-31 or 2000-12-31 23:59"
            raise InputError(f"{self.at(wrong[0])}: {what}; correct it, or list it in 'missing' of the spec")
        return days


def days_of(text: str, since: date) -> float:
    """Return the days from a date to that of a text, its time of day as a part of one; NaN if it is none.

    A time with its zone is that of UTC.
    """
    if not (found := DATE.fullmatch(text)):
        return np.nan
    try:
        day = date(*map(int, found.groups()[:3]))
    except ValueError:
        return np.nan
    hours, minutes, seconds = (float(part or 0) for part in found.groups()[3:6])
    return (day - since).days + (hours * 3600 + minutes * 60 + seconds - _ahead(found[7])) / 86400


def _ahead(zone: str | None) -> int:
    """Return the seconds by which a zone, as Z or +01:00, is ahead of UTC."""
    if zone in (None, "Z"):
        return 0
    return int(f"{zone[0]}1") * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)


def parsed(values: Sequence[str | None]) -> np.ndarray:
    """Return numbers, float64 [m], NaN for what is missing or none; all at once if all are numbers."""
    known: Sequence[Any] = values
    try:
        together = "".join(known)
    except TypeError:  # which finds a None sooner than looking for one
        known = ["nan" if value is None else value for value in values]
        together = "".join(known)
    try:
        if _is_plain(together):
            return np.array(known, np.float64)
    except ValueError:
        pass
    return np.array([number(value) for value in values], np.float64)


def number(value: str | None) -> float:
    """Return the number that a text plainly means, NaN if none."""
    try:
        return np.nan if value is None or not _is_plain(value) else float(value)
    except ValueError:
        return np.nan


def _is_plain(text: str) -> bool:
    """Tell whether a text has nothing of what Python alone takes for a number: 10_1 is 101 to it, and digits
    of any script are digits."""
    return "_" not in text and text.isascii()


def ordered(values: set[str]) -> list[str]:
    """Sort values, numbers by size and others by their letters."""
    sizes = {value: number(value) for value in values}
    by_size = not any(np.isnan(size) for size in sizes.values())
    return sorted(values, key=lambda value: (sizes[value] if by_size else 0.0, value))


def some(names: Sequence[str]) -> str:
    """Return the first dozen of names, for a message."""
    shown = ", ".join(names[:12])
    return f"{shown}, ..." if len(names) > 12 else shown
