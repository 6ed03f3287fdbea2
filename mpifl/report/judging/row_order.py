"""Predictions in the order of the rows that were given, whatever order shards have them in."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mpifl.common import InputError
from mpifl.data import Ragged
from mpifl.data.shards import Provenance, texts_of
from mpifl.report.judging.prediction_tables import Append, Columns

PIECE = 1 << 14
"""Rows that are put into their order at a time."""


@dataclass(frozen=True)
class SplitRows:
    """Where some predictions belong.

    Attributes:
        silo: The silo's name.
        split: The split's name.
        numbering: Which numbering of rows is theirs: sites that import their own data have one each.
        length: How many there are.
        given: Where they were given; None if the shard does not say it.
    """

    silo: str
    split: str
    numbering: int
    length: int
    given: Provenance | None


class RowOrder:
    """The order of the rows of several splits, and what stands beside their predictions.

    Args:
        parts: The splits in the order in which they are predicted.

    Attributes:
        known: Whether all splits say which rows they have.
    """

    def __init__(self, parts: list[SplitRows]) -> None:
        self.known = all(part.given is not None and part.given.rows is not None for part in parts)
        self._parts = parts
        self._begins = np.cumsum([0, *(part.length for part in parts)])
        self._rows = np.concatenate([self._numbers(part) for part in parts] or [np.zeros(0, np.int64)])
        self._numbering = np.repeat([part.numbering for part in parts], np.diff(self._begins)).astype(
            np.int64
        )

    def _numbers(self, part: SplitRows) -> np.ndarray:
        """Return the numbers of a split's rows: those that were given, else their places in the split."""
        rows = part.given.rows if self.known and part.given else None
        return np.arange(part.length) if rows is None else rows

    @property
    def order(self) -> np.ndarray:
        """Return the places of all predictions in the order of their rows, int64 [n]; without numbers as they
        are."""
        if not self.known:
            return np.arange(len(self._rows))
        return np.lexsort([self._rows, self._numbering])

    def about(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns that say what some predictions are of: `row` and perhaps `id`, `silo`, `split`;
        without numbers `place` in the split."""
        of = np.searchsorted(self._begins, places, side="right") - 1
        found = {
            "silo": np.array([part.silo for part in self._parts])[of],
            "split": np.array([part.split for part in self._parts])[of],
        }
        if not self.known:
            return {**found, "place": self._rows[places]}
        ids = (
            {"id": self._ids(places, of)}
            if any(part.given and part.given.ids for part in self._parts)
            else {}
        )
        return {"row": self._rows[places], **ids, **found}

    def _ids(self, places: np.ndarray, of: np.ndarray) -> np.ndarray:
        """Return the ids of some predictions as texts; one of a shard without ids is empty."""
        texts = np.full(len(places), "", object)
        for number in np.unique(of):
            given = self._parts[number].given
            if given is not None and given.ids is not None:
                here = np.flatnonzero(of == number)
                texts[here] = texts_of(given.ids[places[here] - self._begins[number]])
        return texts.astype(np.str_)


@contextmanager
def in_order(rows: RowOrder, out: Path, append: Append) -> Iterator[Append]:
    """Lend what takes predictions as shards have them; append them in the order of their rows.

    They lie in temporary files beside `out` meanwhile, unless they are in order.

    Args:
        rows: Whose they are.
        out: The file that is written.
        append: What takes rows of the table.
    """
    order, begun = rows.order, 0
    if (order == np.arange(len(order))).all():

        def take(columns: Columns) -> None:
            nonlocal begun
            length = len(next(iter(columns.values())))
            append({**rows.about(np.arange(begun, begun + length)), **columns})
            begun += length

        yield take
        return
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        spooled = _Spooled(folder, out)
        yield spooled.append
        for start in range(0, len(order), PIECE):
            places = order[start : start + PIECE]
            append({**rows.about(places), **spooled.take(places)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Spooled:
    """Columns in files, of which any rows can be taken."""

    def __init__(self, folder: Path, out: Path) -> None:
        self._folder, self._out = folder, out
        self._columns: dict[str, _SpooledColumn] = {}

    def append(self, columns: Columns) -> None:
        for name, column in columns.items():
            if name not in self._columns:
                path = self._folder / str(len(self._columns))
                self._columns[name] = _SpooledColumn(f"--out {self._out}: '{name}'", path, column)
            self._columns[name].append(column)

    def take(self, places: np.ndarray) -> dict[str, np.ndarray | Ragged]:
        """Return some rows of all columns."""
        return {name: column.take(places) for name, column in self._columns.items()}


class _SpooledColumn:
    """A column in a file; of a ragged one its rows one after another."""

    def __init__(self, where: str, path: Path, first: np.ndarray | Ragged) -> None:
        self._where, self._path = where, path
        self._file: BinaryIO = path.open("w+b")
        self._dtype, self._shape = first.dtype, _row(first)
        self._lengths: list[np.ndarray] | None = [] if isinstance(first, Ragged) else None
        self._whole: np.ndarray | Ragged | None = None

    def append(self, column: np.ndarray | Ragged) -> None:
        if _row(column) != self._shape:
            found = f"has shape {list(self._shape)} in one row, and {list(_row(column))} in another"
            raise InputError(f"{self._where} {found}; have the model answer alike whatever the length")
        rows = column
        if isinstance(column, Ragged):
            rows = column.joined
            if self._lengths is not None:
                self._lengths.append(column.lengths)
        self._file.write(np.ascontiguousarray(rows, self._dtype).tobytes())

    def take(self, places: np.ndarray) -> np.ndarray | Ragged:
        """Return some rows, once all are there."""
        if self._whole is None:
            self._whole = self._mapped()
        taken: np.ndarray | Ragged = self._whole[places]
        return taken

    def _mapped(self) -> np.ndarray | Ragged:
        self._file.close()
        if not self._path.stat().st_size:  # an empty file cannot be mapped
            values = np.zeros((0, *self._shape), self._dtype)
        else:
            values = np.memmap(self._path, self._dtype, "r").reshape(-1, *self._shape)
        return values if self._lengths is None else Ragged.flat(values, np.concatenate(self._lengths))


def _row(column: np.ndarray | Ragged) -> tuple[int, ...]:
    """Return the shape of one row; of a ragged column of one of its rows."""
    return column.values.shape[1:] if isinstance(column, Ragged) else column.shape[1:]
