"""Data sets of HDF5 files that map into memory without a copy, and compressed ones that are read whole."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np

from mpifl.errors import ShardError

Reader: TypeAlias = Callable[[h5py.Dataset], np.ndarray]
_NATIVE = "<" if sys.byteorder == "little" else ">"


def new_file(path: Path) -> h5py.File:
    """Make a file whose data sets begin at multiples of 64 bytes, and return it open."""
    return h5py.File(path, "w", alignment_threshold=1, alignment_interval=64)


def make_room(
    file: h5py.File, name: str, shape: tuple[int, ...], dtype: np.dtype, filters: Mapping[str, Any] | None = None
) -> None:
    """Make a data set [n, ...]: contiguous, or with h5py's `filters` in chunks of `chunk_rows`."""
    n, *row = shape
    laid_out = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    laid_out.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    more = {"chunks": (min(n, chunk_rows(row, dtype)), *row), **filters} if filters and n else {}
    if not more:
        laid_out.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    file.create_dataset(name, shape, dtype, dcpl=laid_out, **more)


def chunk_rows(shape: Sequence[int], dtype: np.dtype) -> int:
    """Return how many rows a chunk of a compressed data set has: half a MiB, a power of two."""
    return 1 << max(0, ((1 << 19) // (math.prod(shape) * dtype.itemsize)).bit_length() - 1)


def reader(path: Path) -> Reader:
    """Return what gives the data sets of an open file: contiguous ones mapped, chunked ones read whole.

    The file is mapped once, copy-on-write (torch refuses read-only arrays), by the first that wants it: every mapping
    holds a file descriptor for as long as an array lives.
    """

    whole = functools.cache(lambda: np.memmap(path, np.uint8, mode="c"))
    return lambda dataset: _mapped(path, dataset, whole)


def _mapped(path: Path, dataset: h5py.Dataset, whole: Callable[[], np.ndarray]) -> np.ndarray:
    offset = dataset.id.get_offset() if dataset.chunks is None else None
    if offset is None or dataset.size == 0 or dataset.dtype.byteorder not in ("=", "|", _NATIVE):
        with contextlib.suppress(ImportError):
            import hdf5plugin  # noqa: F401 - its import makes lz4, zstd, ... known to HDF5
        made = dataset.id.get_create_plist()
        if not all(h5py.h5z.filter_avail(made.get_filter(i)[0]) for i in range(made.get_nfilters())):
            raise ShardError(f"{path}: compressed with a filter that HDF5 lacks; pip install 'mpifl[compression]'")
        return np.asarray(dataset[...])
    array: np.ndarray = whole()[offset : offset + dataset.nbytes].view(dataset.dtype).reshape(dataset.shape)
    return array
