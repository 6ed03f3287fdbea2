"""Tables written batch by batch, in the form that the file's ending names; there whole or not at all."""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from mpifl.common import InputError
from mpifl.common.machine import floors
from mpifl.data import OFFSETS, Ragged

Columns: TypeAlias = Mapping[str, np.ndarray | Ragged]
"""Some rows: columns of one length by name; only `.npz` takes columns of more than one dimension.

It has the rows of a ragged column one after another, and beside it `NAME.offsets`.
"""
Append: TypeAlias = Callable[[Columns], None]
FLAT = (".parquet", ".csv")


def check_ending(path: Path) -> None:
    """See that a table can be written to a file of this name.

    Raises:
        InputError: its ending is of no known form, or what writes the form is not installed.
    """
    if path.suffix not in WRITERS:
        raise InputError(f"--out {path}: ends in '{path.suffix}'; it must be {', '.join(WRITERS)}")
    if path.suffix == ".parquet":
        _pyarrow(path)


@contextmanager
def written(path: Path) -> Iterator[Append]:
    """Lend what appends rows to a file, under another name until the context ends without an error.

    Raises:
        InputError: the file cannot be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        aside.unlink(missing_ok=True)
        with WRITERS[path.suffix](aside) as append:
            yield append
        os.replace(aside, path)
    except OSError as error:
        raise InputError(f"--out {path}: cannot be written ({error.strerror})") from None
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def _csv(path: Path) -> Iterator[Append]:
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")

        def append(columns: Columns) -> None:
            if not file.tell():
                writer.writerow(columns)
            writer.writerows(
                zip(*(np.asarray(column).astype(str) for column in columns.values()), strict=True)
            )

        yield append


@contextmanager
def _parquet(path: Path) -> Iterator[Append]:
    parquet, arrow = _pyarrow(path)
    writer: Any = None
    with path.open("xb") as file, ExitStack() as stack:

        def append(columns: Columns) -> None:
            nonlocal writer
            rows = arrow.table({name: arrow.array(np.asarray(column)) for name, column in columns.items()})
            if writer is None:
                writer = stack.enter_context(parquet.ParquetWriter(file, rows.schema))
            writer.write_table(rows)

        yield append


@contextmanager
def _npz(path: Path) -> Iterator[Append]:
    """Gather each column in a file of its own: an archive takes one after another."""
    columns: dict[str, _Column] = {}
    with tempfile.TemporaryDirectory(prefix=f"{path.name}.", dir=path.parent) as folder, ExitStack() as stack:

        def add(name: str, values: np.ndarray) -> None:
            if name not in columns:
                file = stack.enter_context(Path(folder, str(len(columns))).open("x+b"))
                columns[name] = _Column(path, name, file, values)
            columns[name].append(values)

        def append(rows: Columns) -> None:
            for name, values in rows.items():
                if isinstance(values, np.ndarray):
                    add(name, values)
                    continue
                begun = name in columns
                add(f"{name}{OFFSETS}", values.offsets[begun:] + (columns[name].rows if begun else 0))
                add(name, values.joined)

        yield append
        with zipfile.ZipFile(path, "x") as archive:
            for name, column in columns.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    column.copy_to(member)


class _Column:
    """A column's values in a file, and the form of one of them."""

    def __init__(self, path: Path, name: str, file: BinaryIO, values: np.ndarray) -> None:
        self._where, self._file = f"--out {path}: '{name}'", file
        self._dtype, self._shape, self.rows = values.dtype, values.shape[1:], 0

    def append(self, values: np.ndarray) -> None:
        if values.shape[1:] != self._shape:
            found = f"has shape {list(self._shape)} in one row, and {list(values.shape[1:])} in another"
            raise InputError(f"{self._where} {found}; have the model answer alike whatever the length")
        self._file.write(np.ascontiguousarray(values, self._dtype).tobytes())
        self.rows += len(values)

    def copy_to(self, member: Any) -> None:
        """Write the column as an `.npy` file."""
        form = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(member, form | {"shape": (self.rows, *self._shape)})
        self._file.seek(0)
        shutil.copyfileobj(self._file, member)


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        instead = "pip install 'mpifl[tables]', or use .csv or .npz"
        raise InputError(f"--out {path}: Parquet needs pyarrow; {instead}") from None
    floors.hold("tables")
    return parquet, pyarrow


WRITERS: dict[str, Callable[[Path], AbstractContextManager[Append]]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".npz": _npz,
}
