"""Read the wanted columns of a table piece by piece, whatever its size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from data_prep.tables import TableSpec
from data_prep.tables.files.csv_table import CsvTable
from data_prep.tables.files.delimiters import separated
from data_prep.tables.files.folders import TableFile, parts_of
from data_prep.tables.files.lines import Lines
from data_prep.tables.files.opening import opened
from data_prep.tables.files.parquet_table import names_of_parquet, parquet_pieces
from data_prep.tables.values import Gaps, Piece, Texts


def pieces(kind: str, path: Path, spec: TableSpec, gaps: Gaps | None = None) -> Iterator[Piece]:
    """Yield the rows of a `csv` or `parquet` table, with the values for missing ones replaced by None.

    Comments that look like rows are counted in `gaps`.

    Raises:
        InputError: the file cannot be read, lacks a column, or is ragged.
    """
    first = 0
    for part in parts_of(kind, path):
        own = {name: spec.in_file(name) for name in spec.columns}
        wanted = {name: part.columns[there] for name, there in own.items() if there in part.columns}
        read = _csv_pieces(part, spec, gaps) if kind == "csv" else parquet_pieces(part, spec)
        for piece in read:
            named = {name: _same(value, len(piece), spec) for name, value in wanted.items()}
            yield replace(piece, columns={**piece.columns, **named}, first=first)
            first += len(piece)


def column_names(kind: str, path: Path, spec: TableSpec) -> list[str]:
    """Return the names of all columns of a table, whether a spec without a label wants them or not."""
    first = parts_of(kind, path)[0]
    if kind == "csv":
        parted = separated(first.path, spec.model_copy(update={"id": None}), first.columns)
        bare = parted.model_copy(update={"features": {}})
        with opened(first.path, spec.encoding) as file:
            names = CsvTable(Lines(first.path, file), bare, first.columns).names
    else:
        names = names_of_parquet(first.path)
    return [*names, *first.columns]


def _csv_pieces(part: TableFile, spec: TableSpec, gaps: Gaps | None) -> Iterator[Piece]:
    spec = separated(part.path, spec, part.columns)
    with opened(part.path, spec.encoding) as file:
        yield from (table := CsvTable(Lines(part.path, file), spec, part.columns)).pieces()
        if gaps is not None:
            gaps.commented += table.commented


def _same(value: str | None, rows: int, spec: TableSpec) -> Texts:
    """Return a column of one value."""
    text = None if value is None or value.strip() in spec.missing else value.strip()
    return Texts.of_one(text, rows)
