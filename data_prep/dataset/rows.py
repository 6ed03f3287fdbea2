"""Rows that need not lie in memory: an array, a mapped file, an HDF5 data set, a folder of images."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from mpifl.data import Array, Column, Ragged
from mpifl.data.shards import by_path

Alter = Callable[[int, int, np.ndarray, np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]
"""What a scheme does to a silo's examples on their way: `(silo, silos, rows, labels, ids, seed) -> (rows,
labels)`.

`ids` [m] are the examples' positions in the source, int64. Shapes and dtypes stay; what becomes of an example
depends on its own id and silo alone, never on the others it is handed with: pieces are cut anywhere and come
in any order.
"""


class Rows(Protocol):
    """Examples along the first axis, read only when they are asked for: a numpy array or memmap is one.

    An index is a slice or a 1-D integer array (in any order, perhaps with repeats) and yields an array in
    memory. An object whose rows are only cheap in their order (a compressed file) has `sequential = True`.
    The writer then reads it once, in slices that begin and end at multiples of `step` where it has one (the
    rows of a chunk). Both are read by several threads at a time.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Return [n, *features]."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype that the rows are to be stored in."""
        ...

    def __getitem__(self, index: Any, /) -> np.ndarray:
        """Return the rows of a slice or of an integer array [m], as an array [m, *features]."""
        ...


class Picked:
    """Some of the rows of another, in an order of their own; nothing is copied until it is asked for."""

    def __init__(self, rows: Rows, index: np.ndarray) -> None:
        self.rows = rows
        self.index = index

    @property
    def shape(self) -> tuple[int, ...]:
        """Return [number picked, *features]."""
        return (len(self.index), *self.rows.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of the rows picked from."""
        return self.rows.dtype

    def __getitem__(self, index: Any, /) -> np.ndarray:
        """Return rows by their positions among those picked."""
        return self.rows[self.index[index]]


class Converted:
    """Rows in another dtype, converted when they are asked for."""

    def __init__(self, rows: Rows, dtype: np.dtype[Any]) -> None:
        self.rows = rows
        self.dtype = dtype
        self.shape = rows.shape
        self.sequential: bool = getattr(rows, "sequential", False)
        if step := getattr(rows, "step", None):
            self.step: int = step

    def __getitem__(self, index: Any, /) -> np.ndarray:
        return self.rows[index].astype(self.dtype)


class Together:
    """Rows of several arrays by name, as one structured array with a field of each: what handles one handles
    them."""

    def __init__(self, arrays: Mapping[str, Rows]) -> None:
        self.arrays = dict(arrays)
        self.shape = (min(rows.shape[0] for rows in self.arrays.values()),)
        self.dtype = np.dtype([(name, rows.dtype, rows.shape[1:]) for name, rows in self.arrays.items()])
        self.sequential = any(getattr(rows, "sequential", False) for rows in self.arrays.values())
        self.step: int = max(getattr(rows, "step", 1) or 1 for rows in self.arrays.values())

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any, /) -> np.ndarray:
        parts = {name: rows[index] for name, rows in self.arrays.items()}
        together = np.empty(len(next(iter(parts.values()))), self.dtype)
        for name, part in parts.items():
            together[name] = part
        return together


class Beside:
    """Arrays by name of the same examples, some of them ragged: an index gives some of the examples.

    `dtype` has the names, and no shapes.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = dict(arrays)
        self.shape = (min(one.shape[0] for one in self.arrays.values()),)
        self.dtype = np.dtype([(name, one.dtype) for name, one in self.arrays.items()])
        self.ndim = 1

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, index: Any, /) -> Any:
        return Beside({name: one[index] for name, one in self.arrays.items()})

    @property
    def row_bytes(self) -> int:
        """Return the bytes of an example in the mean."""
        sizes: list[int] = [row_bytes(one) for one in self.arrays.values()]
        return sum(sizes)


def padded_to(part: str, rows: Any, longest: Mapping[str, int]) -> Any:
    """Return rows of `x` or `y` whose ragged arrays are padded to these lengths at most, by their paths."""
    if isinstance(rows, Beside):
        return Beside({name: padded_to(f"{part}/{name}", one, longest) for name, one in rows.arrays.items()})
    return replace(rows, longest=longest[part]) if isinstance(rows, Ragged) and part in longest else rows


def together(arrays: Mapping[str, Any]) -> Together | Beside:
    """Return rows of several arrays as one."""
    ragged = any(isinstance(one, Ragged) for one in arrays.values())
    return Beside(arrays) if ragged else Together(arrays)


def fields(rows: Any) -> Array:
    """Return the arrays of a structured one, or of `Beside`, by name; any other as it is."""
    if isinstance(rows, Beside):
        return rows.arrays
    return {name: rows[name] for name in rows.dtype.names} if rows.dtype.names else rows


def ragged_arrays(part: str, rows: Any) -> dict[str, Ragged]:
    """Return the ragged arrays among the rows of `x` or `y`, by their paths in a split; nothing is read."""
    arrays = by_path(part, rows.arrays if isinstance(rows, Beside) else rows)
    return {path: one for path, one in arrays.items() if isinstance(one, Ragged)}


def row_bytes(rows: Rows | Column | Beside) -> int:
    """Return the bytes of one example's features; of ragged ones in the mean."""
    if isinstance(rows, Ragged | Beside):
        return int(rows.row_bytes)
    return int(max(1, math.prod(rows.shape[1:]) * rows.dtype.itemsize))


def mapping_of(rows: Rows) -> mmap.mmap | None:
    """Return the mapped file that rows lie in, through whatever is wrapped around them;
    None if they lie in none."""
    inner: Any = rows
    while inner is not None and not isinstance(inner, mmap.mmap):
        inner = getattr(inner, "rows", None) if not isinstance(inner, np.ndarray) else inner.base
    return inner


def release(rows: Rows | Column) -> None:
    """Let go of the pages of a mapped file that were read, which would count as this process's memory."""
    if mapped := mapping_of(rows.values if isinstance(rows, Ragged) else rows):
        mapped.madvise(mmap.MADV_DONTNEED)


def blocks_at(rows: Rows, at: np.ndarray, piece: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the rows at some positions, ascending, block by block, each with the place of its first in `at`.

    Args:
        at: The positions, ascending.
        piece: The bytes that are read at a time.
    """
    unit = max(1, getattr(rows, "step", 1) or 1)
    step = unit * max(1, piece // (unit * row_bytes(rows)))
    for begin in range(0, rows.shape[0], step):
        first, last = np.searchsorted(at, [begin, begin + step])
        if first < last:
            yield int(first), rows[begin : min(begin + step, rows.shape[0])][at[first:last] - begin]
            release(rows)
