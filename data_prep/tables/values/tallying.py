"""What a whole table holds, column by column, in memory that does not grow with its rows but by its ids."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from data_prep.tables.values.dates import ISO, LIKELY, days_of, first_unformed, forms_of
from data_prep.tables.values.notation import OTHERS, PLAIN, Notation
from data_prep.tables.values.piece import MARKS, Piece
from data_prep.tables.values.texts import Texts

MOST_TEXTS = 50
"""Different texts of a column that are counted one by one; of a category no more are taken."""
MOST_DIFFERENT = 1 << 18
"""Different values of a column that are told apart, of whole numbers and texts."""
MOST_NUMBERS = 10
"""Different numbers that are kept."""
MOST_UNLIKE = 0.9
"""Rows share values, as a person's visits do, if at most this share of them has different ones."""
FEW = 0.1
"""A column is one of numbers or dates with mistakes if at most this share is none."""


class ValuePlace(NamedTuple):
    """A value, and where it stands, without the file."""

    value: str
    where: str

    def __str__(self) -> str:
        return f"'{self.value[:40]}' ({self.where})"


@dataclass
class Ways:
    """By which notations the values of a column are numbers.

    Attributes:
        all: Those by which all are.
        apart: Pairs of them by which a value is not the same number.
        shown: The first value that a notation writes otherwise than plainly.
        marked: The first value with a notation's mark of thousands.
        sure: The first of these that has several such marks, or a decimal mark, too, or a mark that is no
            decimal mark: it means one thing.
    """

    all: tuple[Notation, ...] = (PLAIN, *OTHERS)
    apart: set[tuple[Notation, Notation]] = field(default_factory=set)
    shown: dict[Notation, ValuePlace] = field(default_factory=dict)
    marked: dict[Notation, ValuePlace] = field(default_factory=dict)
    sure: dict[Notation, ValuePlace] = field(default_factory=dict)

    @classmethod
    def of_all(cls, tables: Sequence[Ways]) -> Ways:
        """Return by which notations the values of all tables are numbers."""
        made = cls(tuple(way for way in (PLAIN, *OTHERS) if all(way in one.all for one in tables)))
        for one in tables:
            made.apart |= one.apart
            made.shown, made.marked = one.shown | made.shown, one.marked | made.marked
            made.sure = one.sure | made.sure
        return made

    @property
    def certain(self) -> tuple[Notation, ...]:
        """Return those by which all values are numbers, and whose mark of thousands is beyond doubt."""
        return tuple(way for way in self.all if way not in self.marked or way in self.sure)

    def add(self, piece: Piece, rows: Sequence[int], values: Sequence[str], *, plain: bool) -> None:
        """Look at values, which stand in some rows of a piece; `plain` are those that are numbers by `PLAIN`.

        By any other decimal point these are the same numbers, and digits alone are so by every notation.
        """
        doubtful = [way for way in self.all if not (plain and way.decimal == PLAIN.decimal)]
        if not doubtful:
            return
        texts = [one for one in set(values) if not (one.isascii() and one.isdecimal())]
        read = {way: texts if way not in doubtful else _read(texts, way) for way in self.all}
        known = {way: found for way, found in read.items() if found is not None}
        self.all = tuple(known)
        self.apart |= {(a, b) for a in known for b in known if known[a] != known[b]}
        for way, found in known.items():
            if found is texts:
                continue
            others = {a for a, b in zip(texts, found, strict=True) if a != b}
            marks = {one: way.groups(one) for one in others}
            sure = {one for one, groups in marks.items() if groups > 1}
            for first, some in (
                (self.shown, others),
                (self.marked, {*filter(marks.get, marks)}),
                (self.sure, sure),
            ):
                if some and way not in first:
                    at = next(at for at, value in enumerate(values) if value in some)
                    first[way] = ValuePlace(values[at], line_of(piece, rows[at]))


def _read(texts: Sequence[str], way: Notation) -> list[str] | None:
    """Return numbers as Python writes them; None if one is none."""
    found = []
    for text in texts:
        if not (plain := way.plain(text)):
            return None
        found.append(plain)
    return found


@dataclass
class Tally:
    """What one column holds.

    Attributes:
        settled: Whether it is known how numbers are written.
        notation: How they are, in the table that is read.
        each: Of each table, by which notations its values are numbers; unless that is settled.
        code: The first value of digits that begins with 0, as codes do.
        known: How many rows have a value, and no mark of a missing one.
        gaps: How many have none.
        marks: How often each mark of a missing value occurs, and where first.
        first: The first value.
        odd: How many values are no numbers.
        first_odd: The first of these.
        whole: Whether all numbers are whole.
        steps: Whether each number is one more than the one before.
        numbers: Some different numbers, more than `MOST_NUMBERS` if there are more.
        least: The least number.
        most: The largest number.
        undated: How often each value occurs that is no date; more than `MOST_NUMBERS` if there are more.
        first_undated: The first of these.
        forms: By which forms other than that of ISO 8601 all values are dates.
        forms_of_tables: By which forms all values of each table are dates, that of ISO 8601 included.
        first_unformed: The first value that is none by each form of the values before it.
        texts: How often each value occurs; more than `MOST_TEXTS` if there are more.
        looked: How many values were looked at for how many are different.
        equal: How many values are the same as the one before; not counted of fractions.
        ways: By which notations its values are numbers.
    """

    settled: bool = False
    notation: Notation = PLAIN
    each: list[Ways] = field(default_factory=list)
    known: int = 0
    gaps: int = 0
    marks: dict[str, tuple[int, str]] = field(default_factory=dict)
    first: ValuePlace | None = None
    odd: int = 0
    first_odd: ValuePlace | None = None
    whole: bool = True
    steps: bool = True
    numbers: set[float] = field(default_factory=set)
    least: float = np.inf
    most: float = -np.inf
    undated: Counter[str] = field(default_factory=Counter)
    first_undated: ValuePlace | None = None
    forms: tuple[str, ...] = LIKELY
    forms_of_tables: list[tuple[str, ...]] = field(default_factory=list)
    first_unformed: ValuePlace | None = None
    texts: Counter[str] = field(default_factory=Counter)
    looked: int = 0
    equal: int = 0
    ways: Ways = field(default_factory=Ways)
    code: ValuePlace | None = None
    _last: tuple[str, float] | None = None
    _seen: list[np.ndarray] = field(default_factory=list)
    _held: int = 0
    _before: list[Counter[str]] = field(default_factory=list)

    @property
    def keys(self) -> np.ndarray:
        """Return a number for each different value [n], at most some more than `MOST_DIFFERENT`; its last bit
        says whether the value ends in 0 or 5."""
        self._seen = [np.unique(np.concatenate([np.zeros(0, np.int64), *self._seen]))]
        return self._seen[0]

    @property
    def dates(self) -> bool:
        """Tell whether the values are dates, but for few."""
        return len(self.undated) <= MOST_NUMBERS and self.undated.total() <= FEW * self.known

    @property
    def repeats(self) -> bool:
        """Tell whether a value occurs more than once."""
        return self.different < self.looked

    @property
    def shared(self) -> bool:
        """Tell whether rows share values, more than a few of which are equal by chance."""
        return self.different <= MOST_UNLIKE * self.looked

    @property
    def different(self) -> int:
        """Return how many different values there are, of whole numbers and texts."""
        return len(self.keys)

    @property
    def texts_of_tables(self) -> list[set[str]]:
        """The values of each table, as far as `texts` has them."""
        return [{*(after - before)} for before, after in pairwise([*self._before, self.texts])]

    def begin(self, notation: Notation) -> None:
        """Begin another table, whose rows may be numbered anew, and whose numbers are written in a way."""
        self.notation, self._last = notation, None
        self._before.append(Counter(self.texts))
        self.forms_of_tables.append((ISO, *LIKELY))
        if not self.settled:
            self.ways = Ways()
            self.each.append(self.ways)

    def add(self, piece: Piece, name: str) -> None:
        """Look at a column of some rows."""
        texts = piece.columns[name]
        gaps = texts.each(MARKS.__contains__, True, bool)
        if gaps.any():
            self._add_gaps(piece, texts, np.flatnonzero(gaps))
            texts = texts.take(np.flatnonzero(~gaps))
        rows: list[int] = np.flatnonzero(~gaps).tolist()
        values: list[Any] = list(texts)
        if not values:
            return
        self.known += len(values)
        self.first = self.first or ValuePlace(values[0], line_of(piece, rows[0]))
        at = next((at for at, one in enumerate(values) if is_code(one)), None) if not self.code else None
        self.code = self.code if at is None else ValuePlace(values[at], line_of(piece, rows[at]))
        numbers = texts.numbers(self.notation)
        finite = np.isfinite(numbers)
        if not finite.all():
            odd = int(np.argmin(finite))
            self.first_odd = self.first_odd or ValuePlace(values[odd], line_of(piece, rows[odd]))
            self.odd += int((~finite).sum())
        self._add_numbers(numbers, numbers[finite])
        self._add_dates(piece, rows, values)
        self._add_texts(values)
        if not self.settled:
            self.ways.add(piece, rows, values, plain=bool(finite.all()))
        self._last = values[-1], float(numbers[-1])

    def _add_gaps(self, piece: Piece, texts: Texts, rows: np.ndarray) -> None:
        self.gaps += len(rows)
        for row, value in zip(rows.tolist(), texts.take(rows), strict=True):
            if value:
                times, where = self.marks[value] if value in self.marks else (0, line_of(piece, row))
                self.marks[value] = times + 1, where

    def _add_numbers(self, numbers: np.ndarray, known: np.ndarray) -> None:
        """Look at numbers [m], and those of them that are known."""
        if self.steps:
            before = [self._last[1]] if self._last else []
            with np.errstate(invalid="ignore"):  # of numbers beyond float64
                self.steps = bool((np.diff(np.concatenate([before, numbers])) == 1).all())
        if len(known):
            self.least, self.most = min(self.least, float(known.min())), max(self.most, float(known.max()))
            self.whole &= bool((known == np.rint(known)).all())
            if len(self.numbers) <= MOST_NUMBERS:
                self.numbers |= set(known.tolist())

    def _add_dates(self, piece: Piece, rows: Sequence[int], values: list[str]) -> None:
        """Look for values that are no dates, as long as they are few different ones."""
        if self.forms_of_tables[-1]:
            self.forms_of_tables[-1] = forms_of(set(values), self.forms_of_tables[-1])
        if self.forms:
            before, self.forms = self.forms, forms_of(set(values), self.forms)
            if not self.forms:
                at = first_unformed(values, before)
                self.first_unformed = ValuePlace(values[at], line_of(piece, rows[at]))
        if len(self.undated) > MOST_NUMBERS:
            return
        for one, times in Counter(values).items():
            if np.isnan(days_of(one, date.min)):
                if not self.undated:
                    self.first_undated = ValuePlace(one, line_of(piece, rows[values.index(one)]))
                self.undated[one] += times
                if len(self.undated) > MOST_NUMBERS:
                    return

    def _add_texts(self, values: list[str]) -> None:
        if len(self.texts) <= MOST_TEXTS:
            self.texts.update(values)
        if self.odd or self.whole:
            self.equal += sum(map(operator.eq, values, [self._last[0] if self._last else "", *values]))
            if self._held <= MOST_DIFFERENT:
                self._add_keys(values)

    def _add_keys(self, values: list[str]) -> None:
        self.looked += len(values)
        new = {hash(one) & ~1 | (one[-1] in "05") for one in set(values)}
        self._seen.append(np.fromiter(new, np.int64, len(new)))
        if sum(map(len, self._seen)) > 2 * self._held:
            self._held = len(self.keys)


def is_code(text: str) -> bool:
    """Tell whether a text of digits begins with 0, which a number would lose."""
    return text[0] == "0" and len(text) > 1 and text.isascii() and text.isdecimal()


def line_of(piece: Piece, row: int) -> str:
    """Return where a row stands, without the file."""
    return piece.at(row).rpartition(": ")[2]
