"""A column of a table as text: its gaps, its different values, and numbers that Arrow has not read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_prep.tables.files import library
from data_prep.tables.values.notation import PLAIN, Notation


class Texts:
    """The values [m] of a column, None where one is missing; Arrow holds them.

    Args:
        load: What makes the texts, an array of strings, perhaps as numbers of a dictionary. It is asked once,
            when somebody wants a text.
        numbers: The numbers that all of them are known to mean, an array of doubles with the same gaps.
        padded: Which values had blanks behind them, bool [m]; None if none is known to.
    """

    def __init__(
        self, load: Callable[[], Any], numbers: Any = None, padded: np.ndarray | None = None
    ) -> None:
        self._load, self._numbers, self.padded = load, numbers, padded

    @classmethod
    def of(cls, values: Iterable[str | None], padded: np.ndarray | None = None) -> Texts:
        """Take values as Python has them."""
        arrow = library()
        return cls.held(arrow.array(values, arrow.string()), padded)

    @classmethod
    def of_one(cls, value: str | None, rows: int) -> Texts:
        """Take one value for all rows, which is made once."""
        arrow = library()
        codes = arrow.array(np.zeros(rows, np.int32), mask=np.full(rows, value is None))
        return cls.held(arrow.DictionaryArray.from_arrays(codes, arrow.array([value or ""], arrow.string())))

    @classmethod
    def held(cls, array: Any, padded: np.ndarray | None = None) -> Texts:
        """Take texts of Arrow."""
        return cls(lambda: array, None, padded)

    @functools.cached_property
    def array(self) -> Any:
        """Return the texts as Arrow has them."""
        return self._load()

    @property
    def _held(self) -> Any:
        return self.array if self._numbers is None else self._numbers

    @property
    def size(self) -> int:
        """Return the bytes that are held."""
        size: int = self._held.nbytes
        return size

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, row: int) -> str | None:
        text: str | None = self.array[row].as_py()
        return text

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.array.to_pylist())

    @property
    def numeric(self) -> bool:
        """Tell whether all values are known to be numbers, or missing."""
        return self._numbers is not None

    @property
    def lacking(self) -> int:
        """Return how many values are missing."""
        count: int = self._held.null_count
        return count

    @property
    def gaps(self) -> np.ndarray:
        """Return which values are missing, bool [m]."""
        if not self.lacking:
            return np.zeros(len(self), bool)
        gaps: np.ndarray = self._held.is_null().to_numpy(zero_copy_only=False)
        return gaps

    def are(self, text: str) -> np.ndarray:
        """Return which values are a text, bool [m]."""
        if self._numbers is not None:
            found: np.ndarray = self.numbers(PLAIN) == number(text)
            return found
        from pyarrow import compute

        found = compute.equal(self.array, text).fill_null(False).to_numpy(zero_copy_only=False)
        return found

    def take(self, rows: np.ndarray) -> Texts:
        """Return the values of some rows."""
        kept = library().array(rows)
        numbers = None if self._numbers is None else self._numbers.take(kept)
        padded = None if self.padded is None else self.padded[rows]
        return Texts(lambda: self.array.take(kept), numbers, padded)

    @functools.cached_property
    def different(self) -> tuple[list[str], np.ndarray]:
        """Return the different texts, as they come first, and which a row has, int64 [m]; -1 is none.

        A text is made once: a file of few bytes may name a long one in every row. Two may be alike.
        """
        arrow = library()
        coded = self.array if arrow.types.is_dictionary(self.array.type) else self.array.dictionary_encode()
        used = coded.indices.drop_null().unique()
        number_of = np.full(len(coded.dictionary) + 1, -1, np.int64)
        number_of[used.to_numpy()] = np.arange(len(used))
        codes = coded.indices.cast(arrow.int64()).fill_null(len(coded.dictionary)).to_numpy()
        return coded.dictionary.take(used).to_pylist(), number_of[codes]

    def each(self, make: Callable[[str], Any], lacking: Any, dtype: Any = np.float64) -> np.ndarray:
        """Return what `make` makes of each value [m], asked once a text, and `lacking` for a missing one."""
        texts, codes = self.different
        made: np.ndarray = np.array([*map(make, texts), lacking], dtype)[codes]
        return made

    def spelled(self, words: Mapping[str, str]) -> Texts:
        """Return the same with other words for some texts."""
        texts, codes = self.different
        return Texts.of(
            [None if code < 0 else words.get(texts[code], texts[code]) for code in codes.tolist()]
        )

    def numbers(self, notation: Notation) -> np.ndarray:
        """Return the numbers, float64 [m], NaN for what is missing or none."""
        known = self._numbers
        if known is None and notation == PLAIN:
            known = self._cast()
        if known is not None:
            numbers: np.ndarray = known.to_numpy(zero_copy_only=False)
            return numbers
        read = number if notation == PLAIN else lambda text: number(notation.plain(text))
        return self.each(read, np.nan)

    def _cast(self) -> Any:
        """Return the numbers as Arrow reads them; None where it takes a text for none.

        What it takes for one, Python does too, and for the same: both round correctly.
        """
        arrow = library()
        if arrow.types.is_dictionary(self.array.type):
            return None
        try:
            return self.array.cast(arrow.float64())
        except arrow.ArrowInvalid:
            return None


def stripped(array: Any, missing: Sequence[str]) -> Any:
    """Return texts of Arrow without blanks at their ends, null where they are one of those for missing."""
    from pyarrow import compute

    arrow = library()
    texts = compute.utf8_trim_whitespace(array)
    gaps = compute.is_in(texts, value_set=arrow.array(missing, texts.type))
    return without(texts, gaps)


def padded(array: Any) -> np.ndarray | None:
    """Return which texts of Arrow have blanks behind them, bool [m]; None where none has."""
    from pyarrow import compute

    behind = compute.not_equal(compute.utf8_rtrim_whitespace(array), array).fill_null(False)
    return behind.to_numpy(zero_copy_only=False) if compute.any(behind).as_py() else None


def without(array: Any, gaps: Any) -> Any:
    """Return an array of Arrow, null where `gaps` are true."""
    from pyarrow import compute

    return compute.if_else(gaps, library().scalar(None, array.type), array)


def number(value: str | None) -> float:
    """Return the number that a text plainly means, NaN if none."""
    try:
        return np.nan if value is None or not is_plain(value) else float(value)
    except ValueError:
        return np.nan


def is_plain(text: str) -> bool:
    """Tell whether a text has nothing of what Python alone takes for a number: 10_1 is 101 to it, and digits
    of any script are digits."""
    return "_" not in text and text.isascii()
