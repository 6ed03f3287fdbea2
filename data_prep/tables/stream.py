"""Read the wanted columns of a table piece by piece, whatever its size, as text."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from data_prep.tables.piece import Piece
from data_prep.tables.spec import TableSpec
from mpifl.errors import InputError

ROWS = 1 << 14
"""How many rows a piece has at most."""


def pieces(kind: str, path: Path, spec: TableSpec) -> Iterator[Piece]:
    """Yield the rows of a `csv` or `parquet` table, with the values for missing ones replaced by None.

    Raises:
        InputError: the file cannot be read, lacks a column, or is ragged.
    """
    missing = set(spec.missing)
    for piece in _csv_pieces(path, spec) if kind == "csv" else _parquet_pieces(path, spec):
        known = {name: _without(missing, values) for name, values in piece.columns.items()}
        yield Piece(piece.where, known, piece.places)


def _without(missing: set[str], values: Sequence[str | None]) -> Sequence[str | None]:
    return values if missing.isdisjoint(values) else [None if value in missing else value for value in values]


def _csv_pieces(path: Path, spec: TableSpec) -> Iterator[Piece]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=spec.delimiter, skipinitialspace=True, strict=True)
            rows = ((reader.line_num, row) for row in reader if _is_row(row, spec.comment))
            names = list(spec.names) if spec.names else [name.strip() for name in next(rows, (0, []))[1]]
            wanted = _positions(path, names, spec)
            while numbered := list(islice(rows, ROWS)):
                yield _csv_piece(path, numbered, len(names), wanted)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); --data must name the table") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV table in UTF-8, or damaged ({error}); export it again") from None


def _is_row(row: list[str], comment: str | None) -> bool:
    return bool(row) and not (comment and row[0].startswith(comment)) and row != [""]


def _csv_piece(path: Path, numbered: list[tuple[int, list[str]]], width: int, wanted: dict[str, int]) -> Piece:
    for line, row in numbered:
        if len(row) != width:
            raise InputError(f"{path}: line {line}: {len(row)} values, there are {width} columns; repair or remove it")
    columns = list(zip(*(row for _, row in numbered), strict=True))
    stripped = {name: list(map(str.strip, columns[at])) for name, at in wanted.items()}
    return Piece(f"{path}: line", stripped, [line for line, _ in numbered])


def _positions(path: Path, names: Sequence[str], spec: TableSpec) -> dict[str, int]:
    """Return the position of every wanted column; refuse one that is not there, or there twice."""
    for name in spec.columns:
        if names.count(name) != 1:
            found = "is there twice" if name in names else f"is not there; there are {', '.join(names)[:300]}"
            raise InputError(f"{path}: column '{name}' of the spec {found}")
    return {name: names.index(name) for name in spec.columns}


def _parquet_pieces(path: Path, spec: TableSpec) -> Iterator[Piece]:
    parquet, arrow = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            _positions(path, file.schema_arrow.names, spec)
            row = 0
            for read in file.iter_batches(batch_size=ROWS, columns=spec.columns):
                columns = {name: _texts(read.column(name), arrow) for name in spec.columns}
                yield Piece(f"{path}: row", columns, range(row, row := row + read.num_rows))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}); --data must name a Parquet table") from None
    except arrow.ArrowException as error:
        first = str(error).splitlines()[0]
        raise InputError(
            f"{path}: not a Parquet table of plain columns, or damaged ({first}); export it again"
        ) from None


def _texts(column: Any, arrow: Any) -> list[str | None]:
    """Write values as text; numbers come back to the bit."""
    values: list[str | None] = column.cast(arrow.string()).to_pylist()
    return values


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError("SOURCE: 'parquet' needs pyarrow; pip install 'mpifl[tables]'") from None
    return parquet, pyarrow
