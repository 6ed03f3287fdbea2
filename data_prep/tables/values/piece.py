"""Some rows of a table as text: what stands where, and which numbers it means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from data_prep.tables.values.dates import LIKELY, days_of, example, forms_of, likeliest, unlike
from data_prep.tables.values.notation import OTHERS, PLAIN, Notation
from data_prep.tables.values.texts import Texts, number
from mpifl.common import InputError

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
        columns: The values [m] of every wanted column.
        rows: Which these are [m] of those that were read at once.
        place: Tells the number of one of those; it may have to look for it.
        notation: How numbers are written.
        beside: The bytes that it holds beside its columns, to tell the number of a row and show its texts.
        first: The number of the first row that was read at once, counted over the whole table from 0.
    """

    where: str
    columns: Mapping[str, Texts]
    rows: np.ndarray
    place: Callable[[int], int]
    notation: Notation = PLAIN
    beside: int = 0
    first: int = 0

    @property
    def size(self) -> int:
        """Return the bytes that it takes."""
        return self.beside + sum(texts.size for texts in self.columns.values())

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, row: int) -> str:
        """Return where a row stands, as messages name it."""
        return f"{self.where} {self.place(int(self.rows[row]))}"

    @property
    def numbers_of_rows(self) -> np.ndarray:
        """Return the number of each row in the whole table, counted from 0, int64 [m]."""
        return self.first + self.rows.astype(np.int64)

    def without_gaps(self, names: Iterable[str]) -> Piece:
        """Leave out the rows in which one of these columns lacks its value."""
        gappy = [self.columns[name].gaps for name in names if self.columns[name].lacking]
        return self.take(np.flatnonzero(~np.logical_or.reduce(gappy))) if gappy else self

    def take(self, rows: np.ndarray) -> Piece:
        """Return some of the rows."""
        columns = {name: texts.take(rows) for name, texts in self.columns.items()}
        return replace(self, columns=columns, rows=self.rows[rows])

    def numbers(self, name: str) -> np.ndarray:
        """Return a column as float64 [m], NaN where a value is missing; refuse what is no finite number."""
        texts = self.columns[name]
        numbers = texts.numbers(self.notation)
        if (wrong := ~np.isfinite(numbers) & ~texts.gaps).any():
            row = int(np.argmax(wrong))
            text = texts[row] or ""
            what = f"{name} is '{text}', not a finite number"
            remedy = f"correct it, or list it in 'missing' of the spec{self._otherwise(text)}"
            if forms := likeliest(forms_of([text], LIKELY)):
                known = f'kind = "date" with since = "2000-01-01" and format = "{forms[0]}"'
                what, remedy = f"{name} is '{text}', no number", f"a date is {known}"
            raise InputError(f"{self.at(row)}: {what}; {remedy}")
        return numbers

    def _otherwise(self, text: str) -> str:
        """Return the keys of a spec by which a text is a number, for a message."""
        found = next((other for other in (PLAIN, *OTHERS) if other.plain(text)), self.notation)
        written = f", or say {' and '.join(found.written())} in the table's spec (--spec SITE.toml)"
        return written if found not in (self.notation, PLAIN) else ""

    def days(self, name: str, since: date, form: str | None = None) -> np.ndarray:
        """Return a column of dates as days since another, float64 [m], NaN where a value is missing.

        Args:
            name: The column.
            since: The day that is 0.
            form: How dates are written; as ISO 8601 has them where it is not stated.

        Raises:
            InputError: a value is no such date.
        """
        texts = self.columns[name]
        days = texts.each(lambda text: days_of(text, since, form), np.nan)
        if (wrong := np.isnan(days) & ~texts.gaps).any():
            row = int(np.argmax(wrong))
            what = f"{name} is '{texts[row]}'"
            if forms := likeliest(forms_of(texts.different[0])):  # of one value it would make all others none
                known = " or ".join(f'format = "{other}"' for other in forms)
                raise InputError(
                    f"{self.at(row)}: {what}, not a date as {example(form)}; say {known} in the spec"
                )
            raise InputError(f"{self.at(row)}: {what}, {unlike(texts[row] or '', form)}")
        return days


def ordered(values: set[str]) -> list[str]:
    """Sort values, numbers by size and others by their letters."""
    sizes = {value: number(value) for value in values}
    by_size = not any(np.isnan(size) for size in sizes.values())
    return sorted(values, key=lambda value: (sizes[value] if by_size else 0.0, value))


def some(names: Sequence[str]) -> str:
    """Return the first dozen of names, for a message."""
    shown = ", ".join(names[:12])
    return f"{shown}, ..." if len(names) > 12 else shown
