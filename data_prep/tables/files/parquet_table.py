"""A table of Parquet or Arrow, piece by piece."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.tables import TableSpec
from data_prep.tables.files import lines as limits
from data_prep.tables.files.arrow import library
from data_prep.tables.files.column_positions import positions
from data_prep.tables.files.feather import batches_of, opened_feather
from data_prep.tables.files.folders import TableFile
from data_prep.tables.files.opening import ARROW
from data_prep.tables.files.unpacking import check_unpacked
from data_prep.tables.values import Piece, Texts, number, padded, stripped, without
from mpifl.common import InputError


def parquet_pieces(part: TableFile, spec: TableSpec) -> Iterator[Piece]:
    """Yield the rows of a table of Parquet or Arrow, with the values for missing ones replaced by None.

    Raises:
        InputError: the file cannot be read, or lacks a column.
    """
    path, marks = part.path, spec.marks
    with _opened(path) as (names, batches):
        own, first = positions(path, names, spec, part.columns), 0
        for read in batches([names[place] for place in own.values()]):
            columns = {n: _plain(path, n, read.column(names[place]), marks) for n, place in own.items()}
            _check_texts(path, first, columns)
            place = functools.partial(int.__add__, first)
            yield Piece(f"{path}: row", columns, np.arange(read.num_rows), place)
            first += read.num_rows


@contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Callable[[list[str]], Iterable[Any]]]]:
    """Lend the names of a table's columns, and what reads some of them, batch by batch."""
    kind = "an Arrow" if path.suffix in ARROW else "a Parquet"
    try:
        if kind == "an Arrow":
            with opened_feather(path) as reader:
                yield list(reader.schema.names), functools.partial(batches_of, reader)
        else:
            yield from _of_parquet(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}); --data must name {kind} table") from None
    except (library().ArrowException, UnicodeDecodeError) as error:
        said = str(error).splitlines()[0]
        what = f"not {kind} table of plain columns, or damaged ({said})"
        raise InputError(f"{path}: {what}; export it again") from None


def _of_parquet(path: Path) -> Iterator[tuple[list[str], Callable[[list[str]], Iterable[Any]]]]:
    from pyarrow import parquet

    words = [field.name for field in parquet.read_schema(path) if _is_text(field.type)]
    with parquet.ParquetFile(path, read_dictionary=words) as file:

        def batches(columns: list[str]) -> Iterable[Any]:
            check_unpacked(path, "columns", _unpacked(file.metadata, {*columns}))
            found: Iterable[Any] = file.iter_batches(batch_size=limits.ROWS, columns=columns)
            return found

        yield list(file.schema_arrow.names), batches


def _check_texts(path: Path, first: int, columns: Mapping[str, Texts]) -> None:
    """Refuse texts with a NUL character, which no name in a shard may have."""
    for name, texts in columns.items():
        if texts.numeric or "\0" not in "".join(texts.different[0]):
            continue
        row = first + int(np.argmax(texts.each(lambda text: "\0" in text, False, bool)))
        raise InputError(f"{path}: row {row}: {name} has a NUL character; export the table again")


def names_of_parquet(path: Path) -> list[str]:
    """Return the names of the columns of a table of Parquet or Arrow."""
    with _opened(path) as (names, _):
        return names


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


def _plain(path: Path, name: str, column: Any, missing: tuple[str, ...]) -> Texts:
    """Return the values of a column as text; refuse lists, records and bytes that are none."""
    try:
        return _texts(column, missing)
    except library().ArrowException as error:
        what = f"column '{name}' is {column.type}, not plain values ({str(error).splitlines()[0]})"
        raise InputError(f"{path}: {what}; remove it from the table, or make plain columns of it") from None


def _texts(column: Any, missing: tuple[str, ...]) -> Texts:
    """Return values as text; numbers come back to the bit, and a NaN is missing."""
    arrow, types = library(), library().types
    from pyarrow import compute

    load = functools.partial(_as_text, column, missing)
    exact = types.is_float64(column.type) or types.is_integer(
        column.type
    )  # others are what they are written as
    if not exact or any(np.isfinite(number(text)) for text in missing):
        return Texts.held(load(), _padded(column))
    numbers = column.cast(arrow.float64(), safe=False)
    return Texts(load, without(numbers, compute.is_nan(numbers)))


def _as_text(column: Any, missing: tuple[str, ...]) -> Any:
    """Return texts of Arrow, null where one is missing.

    A text that many rows have is made once: a file of few bytes may name one of many in every row.
    """
    arrow, types = library(), library().types
    from pyarrow import compute

    if types.is_dictionary(column.type):
        used = column.indices.drop_null().unique()
        codes = compute.index_in(column.indices, value_set=used)
        texts = _as_text(column.dictionary.take(used), missing)
        return arrow.DictionaryArray.from_arrays(without(codes, texts.is_null().take(codes)), texts)
    if types.is_timestamp(column.type) and column.type.tz:
        column = column.cast(
            arrow.timestamp(column.type.unit)
        )  # of UTC, which no table of zones is asked for
    nan = ("nan",) if types.is_floating(column.type) else ()
    return stripped(column.cast(arrow.string()), (*missing, *nan))


def _padded(column: Any) -> np.ndarray | None:
    """Return which values had blanks behind them, bool [m]; None where none had."""
    arrow = library()
    if not arrow.types.is_dictionary(column.type):
        return padded(column.cast(arrow.string())) if _is_text(column.type) else None
    from pyarrow import compute

    used = column.indices.drop_null().unique()
    found = padded(column.dictionary.take(used).cast(arrow.string()))
    if found is None:
        return None
    codes = compute.index_in(column.indices, value_set=used)
    behind: np.ndarray = arrow.array(found).take(codes).fill_null(False).to_numpy(zero_copy_only=False)
    return behind


def _is_text(kind: Any) -> bool:
    types = library().types
    return any(is_one(kind) for is_one in (types.is_string, types.is_large_string, types.is_binary))
