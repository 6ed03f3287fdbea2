"""A CSV table, piece by piece: Arrow reads texts and numbers, and Python's reader what Arrow refuses."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_prep.tables import TableSpec
from data_prep.tables.files.arrow import library
from data_prep.tables.files.blocks import RowBlock, next_block
from data_prep.tables.files.column_positions import positions
from data_prep.tables.files.delimiters import separator
from data_prep.tables.files.lines import CsvRows, Lines
from data_prep.tables.values import Piece, Texts, padded, stripped
from mpifl.common import InputError

Numbered = Sequence[tuple[int, list[str]]]
"""Rows with the number of each one's last line."""


class CsvTable:
    """What is left of a table's rows.

    Args:
        lines: Its text, of which the header is taken.
        spec: What its columns mean.
        given: Columns that the names of its folders give to all its rows.

    Attributes:
        commented: How many lines, so far, look like rows and are comments.
        names: Of all columns.

    Raises:
        InputError: a column of the spec is not there, or there twice.
    """

    def __init__(self, lines: Lines, spec: TableSpec, given: Collection[str] = ()) -> None:
        self.commented = 0
        self._lines, self._spec, self._path = lines, spec, lines.path
        header = list(spec.names) if spec.names else next(iter(CsvRows(lines, spec)), (0, []))[1]
        self.names = header if spec.names else [name.strip() for name in header]
        self._wanted = positions(self._path, self.names, spec, given)
        self._numbered = [str(at) for at in range(len(self.names))]  # names may stand there twice
        self._numeric = _numeric(spec)
        self._missing = [text for text in dict.fromkeys(spec.marks) if text == text.strip()]

    def pieces(self) -> Iterator[Piece]:
        """Yield them piece by piece; raise InputError for what is no row."""
        while piece := self._at_once() or self._by_python():
            yield piece

    def _at_once(self) -> Piece | None:
        """Return the next rows as Arrow reads them; None if it does not, or there is none."""
        code, comment = separator(self._spec).encode(), (self._spec.comment or "").encode()
        if len(code) > 1 or code in b' "' or len(self.names) < 2:
            return None
        block = next_block(self._lines, code[0])
        if block is None or (comment and comment in block.content):
            return None
        columns = self._columns(block)
        if columns is None or self._has_names(columns):
            return None
        before = self._lines.taken
        self._lines.take(len(block.content), block.lines)

        @functools.cache
        def places() -> list[int]:
            text = Lines(self._path, io.BytesIO(block.content), before)
            return [line for line, _ in CsvRows(text, self._spec)]

        return self._piece(columns, lambda row: places()[row], block.rows, len(block.content))

    def _by_python(self) -> Piece | None:
        """Return the next rows as Python's reader reads them; None if there is none."""
        numbered = (rows := CsvRows(self._lines, self._spec, len(self.names))).piece()
        self.commented += rows.commented
        if not numbered:
            return None
        self._check(numbered)
        columns = {name: self._column([row[at] for _, row in numbered]) for name, at in self._wanted.items()}
        beside = sum(sum(map(sys.getsizeof, row)) for _, row in numbered)
        return self._piece(columns, lambda row: numbered[row][0], len(numbered), beside)

    def _column(self, values: Sequence[str]) -> Texts:
        """Return a column as Python's reader reads it."""
        missing = {*self._missing}
        behind = np.array([text[-1:].isspace() for text in values], bool)
        texts = [None if (text := value.strip()) in missing else text for value in values]
        return Texts.of(texts, behind if behind.any() else None)

    def _piece(self, columns: Mapping[str, Texts], place: Any, rows: int, beside: int) -> Piece:
        where, notation = f"{self._path}: line", self._spec.notation
        return Piece(where, columns, np.arange(rows), place, notation, beside)

    def _columns(self, block: RowBlock) -> dict[str, Texts] | None:
        """Return the wanted columns of a block; None if Arrow finds no table in it."""
        for numeric in [self._numeric, frozenset[str]()]:
            try:
                read = self._read(block, list(self._wanted), numeric)
            except library().ArrowInvalid:
                self._numeric = frozenset()  # the next piece is likely to have such a value, too
                continue
            if all(len(array) == block.rows for array in read.values()):
                blank = block.blank
                return {
                    name: Texts(functools.partial(self._texts, block, name), array)
                    if name in numeric
                    else self._words(array, blank)
                    for name, array in read.items()
                }
        return None

    def _words(self, array: Any, blank: bool) -> Texts:
        """Return texts that were read, among which there may be blanks."""
        return Texts.held(stripped(array, self._missing), padded(array)) if blank else Texts.held(array)

    def _texts(self, block: RowBlock, name: str) -> Any:
        """Return the texts of numbers, which are read when they are asked for."""
        return self._words(self._read(block, [name], frozenset())[name], block.blank).array

    def _read(self, block: RowBlock, names: Sequence[str], numeric: Collection[str]) -> dict[str, Any]:
        """Read columns of a block: numbers, or texts as they stand; null where missing."""
        arrow = library()
        from pyarrow import csv

        at = {name: str(self._wanted[name]) for name in names}
        kinds = {at[name]: arrow.float64() if name in numeric else arrow.string() for name in names}
        table = csv.read_csv(
            arrow.BufferReader(block.content),
            csv.ReadOptions(column_names=self._numbered, block_size=len(block.content) + 1),
            csv.ParseOptions(delimiter=separator(self._spec), newlines_in_values=b'"' in block.content),
            csv.ConvertOptions(
                column_types=kinds,
                include_columns=list(kinds),
                null_values=self._missing,
                strings_can_be_null=True,
                decimal_point=self._spec.decimal,
            ),
        )
        return {name: table.column(number).combine_chunks() for name, number in at.items()}

    def _has_names(self, columns: Mapping[str, Texts]) -> bool:
        """Tell whether a row may be that of the names, by the wanted columns alone."""
        rows: Any = True
        for name, texts in columns.items():
            rows = rows & (texts.are(self.names[self._wanted[name]]) | texts.gaps)
            if not rows.any():
                return False
        return True

    def _check(self, numbered: Numbered) -> None:
        """Refuse a row that has other than one value a column, and one that is the header again."""
        names = self.names
        for line, row in numbered:
            where = f"{self._path}: line {line}"
            if len(row) != len(names):
                told = f"{len(row)} values, there are {len(names)} columns; repair or remove it"
                raise InputError(f"{where}: {told}")
            if row[0].strip() == names[0] and [value.strip() for value in row] == names:
                remedy = "remove 'names' from the spec" if self._spec.names else "remove it"
                raise InputError(f"{where}: the names of the columns, and no row; {remedy}")


def _numeric(spec: TableSpec) -> frozenset[str]:
    """Return the columns that are numbers to a spec, if they are written in a way that Arrow reads, too."""
    label = spec.label
    learned = label.read if label.kind == "numeric" or spec.threshold is not None else ()
    timed = label.read[:1] if label.kind == "survival" else ()
    counted = [name for name, column in spec.features.items() if column.kind == "numeric"]
    return frozenset() if spec.thousands else frozenset([*counted, *learned, *timed])
