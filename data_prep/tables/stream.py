"""Read the wanted columns of a table piece by piece, whatever its size, as text."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from data_prep.tables.piece import Piece
from data_prep.tables.spec import TableSpec
from data_prep.tables.unpacking import check_unpacked
from mpifl.common import InputError, did_you_mean
from mpifl.common.machine import floors

ROWS = 1 << 14
"""How many rows a piece has at most."""
MOST_PIECE = 1 << 26
"""Characters of a CSV table after which a piece ends."""
MOST_ROW = 1 << 24
"""Characters that a row of a CSV table has fewer of; a field has at most 131,072, Python's own limit."""


def pieces(kind: str, path: Path, spec: TableSpec) -> Iterator[Piece]:
    """Yield the rows of a `csv` or `parquet` table, with the values for missing ones replaced by None.

    Raises:
        InputError: the file cannot be read, lacks a column, or is ragged.
    """
    missing = set(spec.missing)
    for piece in _csv_pieces(path, spec) if kind == "csv" else _parquet_pieces(path, spec):
        known = {name: _without(missing, values) for name, values in piece.columns.items()}
        whole = [name for name, values in known.items() if kind == "csv" and values is piece.columns[name]]
        yield replace(piece, columns=known, full=frozenset(whole))


def _without(missing: set[str], values: Sequence[str | None]) -> Sequence[str | None]:
    return values if missing.isdisjoint(values) else [None if value in missing else value for value in values]


def _csv_pieces(path: Path, spec: TableSpec) -> Iterator[Piece]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = _Rows(path, file, spec)
            names = (
                list(spec.names) if spec.names else [name.strip() for name in next(iter(rows), (0, []))[1]]
            )
            wanted = _positions(path, names, spec)
            while numbered := rows.piece():
                _check_rows(path, numbered, names, spec)
                yield replace(_csv_piece(path, numbered, wanted), notation=spec.notation)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); --data must name the table") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV table in UTF-8, or damaged ({error}); export it again") from None


class _Rows:
    """The rows of a CSV table with the number of each one's last line; none is longer than `MOST_ROW`."""

    def __init__(self, path: Path, file: TextIO, spec: TableSpec) -> None:
        self._path, self._file, self._comment = path, file, spec.comment
        self._reader = csv.reader(self._lines(), delimiter=spec.delimiter, skipinitialspace=True, strict=True)
        self._row = self._piece = 0  # characters so far

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        for row in self._reader:
            self._row = 0
            if row and row != [""]:
                yield self._reader.line_num, row

    def piece(self) -> list[tuple[int, list[str]]]:
        """Return the next rows, none at the end."""
        self._piece, numbered = 0, []
        for row in self:
            numbered.append(row)
            if len(numbered) == ROWS or self._piece > MOST_PIECE:
                break
        return numbered

    def _lines(self) -> Iterator[str]:
        while line := self._file.readline(MOST_ROW):
            # before it is parsed: a quotation mark in a comment would take the rows below into it
            comment = not self._row and self._comment and line.lstrip(" ").startswith(self._comment)
            self._row += len(line)
            self._piece += len(line)
            if self._row >= MOST_ROW:
                where = f"{self._path}: line {self._reader.line_num + 1}"
                raise InputError(f"{where}: longer than {MOST_ROW:,} characters; export the table again")
            if "\0" in line:
                where = f"{self._path}: line {self._reader.line_num + 1}"
                raise InputError(f"{where}: has a NUL character; export the table again")
            yield "\n" if comment else line


def _check_rows(path: Path, numbered: list[tuple[int, list[str]]], names: list[str], spec: TableSpec) -> None:
    """Refuse a row that has other than one value a column, and one that is the header again."""
    width, first = len(names), names[0]
    for line, row in numbered:
        if len(row) != width:
            raise InputError(
                f"{path}: line {line}: {len(row)} values, there are {width} columns; repair or remove it"
            )
        if row[0].strip() == first and [value.strip() for value in row] == names:
            remedy = "take 'names' out of the spec" if spec.names else "remove it"
            raise InputError(f"{path}: line {line}: the names of the columns, and no row; {remedy}")


def _csv_piece(path: Path, numbered: list[tuple[int, list[str]]], wanted: dict[str, int]) -> Piece:
    columns = list(zip(*(row for _, row in numbered), strict=True))
    stripped = {name: list(map(str.strip, columns[at])) for name, at in wanted.items()}
    return Piece(f"{path}: line", stripped, [line for line, _ in numbered])


def _positions(path: Path, names: Sequence[str], spec: TableSpec) -> dict[str, int]:
    """Return the position of every wanted column; refuse one that is not there, or there twice."""
    for name in spec.columns:
        if names.count(name) != 1:
            hint = did_you_mean(name, names)
            there = f"is not there; {hint}there are {', '.join(names)[:300]}"
            found = "is there twice" if name in names else there
            raise InputError(f"{path}: column '{name}' of the spec {found}")
    return {name: names.index(name) for name in spec.columns}


def _parquet_pieces(path: Path, spec: TableSpec) -> Iterator[Piece]:
    parquet, arrow = _pyarrow()
    try:
        words = _columns_of_text(parquet.read_schema(path), arrow)
        with parquet.ParquetFile(path, read_dictionary=words) as file:
            _positions(path, file.schema_arrow.names, spec)
            check_unpacked(path, "columns", _unpacked(file.metadata, set(spec.columns)))
            row = 0
            for read in file.iter_batches(batch_size=ROWS, columns=spec.columns):
                columns = {name: _texts(read.column(name), arrow) for name in spec.columns}
                _check_texts(path, row, columns)
                yield Piece(f"{path}: row", columns, range(row, row := row + read.num_rows))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}); --data must name a Parquet table") from None
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise InputError(
            f"{path}: not a Parquet table of plain columns, or damaged ({first}); export it again"
        ) from None


def _check_texts(path: Path, first: int, columns: Mapping[str, Sequence[str | None]]) -> None:
    """Refuse texts with a NUL character, which no name in a shard may have."""
    for name, values in columns.items():
        if "\0" not in "".join(value for value in set(values) if value):
            continue
        row = next(row for row, value in enumerate(values) if value and "\0" in value)
        raise InputError(f"{path}: row {first + row}: {name} has a NUL character; export the table again")


def names_of_parquet(path: Path) -> list[str]:
    """Return the names of a Parquet table's columns."""
    parquet, arrow = _pyarrow()
    try:
        return list(parquet.read_schema(path).names)
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as a Parquet table ({error})") from None


def _unpacked(metadata: Any, columns: set[str]) -> int:
    """Return the bytes that some columns of the largest group of
    rows have by a Parquet file's own account."""
    sizes = [0]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = map(group.column, range(group.num_columns))
        sizes.append(
            sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in columns)
        )
    return max(sizes)


def _texts(column: Any, arrow: Any) -> list[str | None]:
    """Write values as text; numbers come back to the bit, and a NaN is missing.

    A text that many rows have is made once: a file of few bytes may name one of many in every row.
    """
    if arrow.types.is_dictionary(column.type):
        codes = column.indices.drop_null().unique()
        texts = _texts(column.dictionary.take(codes), arrow)
        by_code = dict(zip(codes.to_pylist(), texts, strict=True))
        return [by_code.get(code) for code in column.indices.to_pylist()]
    if arrow.types.is_timestamp(column.type) and column.type.tz:
        column = column.cast(
            arrow.timestamp(column.type.unit)
        )  # of UTC, which no table of zones is asked for
    values: list[str | None] = column.cast(arrow.string()).to_pylist()
    if arrow.types.is_floating(column.type):
        return [None if value == "nan" else value for value in values]
    return [value and value.strip() for value in values] if _is_text(column.type, arrow) else values


def _columns_of_text(schema: Any, arrow: Any) -> list[str]:
    """Return the names of the columns that are read as numbers of the different texts in them."""
    return [field.name for field in schema if _is_text(field.type, arrow)]


def _is_text(kind: Any, arrow: Any) -> bool:
    kinds = (arrow.types.is_string, arrow.types.is_large_string, arrow.types.is_binary)
    return any(is_one(kind) for is_one in kinds)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError("SOURCE: 'parquet' needs pyarrow; pip install 'mpifl[tables]'") from None
    floors.hold("tables")
    return parquet, pyarrow
