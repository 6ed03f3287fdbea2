"""Writing HDF5 files whose data sets map into memory without a copy, or are compressed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def new_file(path: Path) -> h5py.File:
    """Make a file whose data sets begin at multiples of 64 bytes, and return it open."""
    # no lock: some shared file systems have none, and nobody else knows the file yet
    return h5py.File(path, "w", locking=False, alignment_threshold=1, alignment_interval=64)


def make_room(
    file: h5py.File,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    filters: Mapping[str, Any] | None = None,
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
