"""Writes HDF5 files whose data sets can be mapped without a copy, or are compressed."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np


class WrittenFile(h5py.File):  # type: ignore[misc]  # h5py has no types
    """An HDF5 file for writing, whose data sets begin at multiples of 64 bytes.

    HDF5 itself is never told of a full disk. Otherwise it would keep the file that it could not close, try
    again at the end of the process, and crash.

    Args:
        mode: `w` makes a new file, `r+` changes the existing one.
    """

    def __init__(self, path: Path, mode: str = "w") -> None:
        self._disk = _Disk(path, "w+" if mode == "w" else mode)
        # no lock: some shared file systems have none, and no other process knows the file yet
        super().__init__(self._disk, mode, locking=False, alignment_threshold=1, alignment_interval=64)

    def check(self) -> None:
        """Raise the OSError of the first refused write, if there was one."""
        if self._disk.refused:
            raise self._disk.refused

    def close(self) -> None:
        """Close the file; raise OSError if not all of it was written."""
        try:
            super().close()
        finally:
            self._disk.close()
            self.check()


class _Disk(io.FileIO):
    """The disk that HDF5 sees: it accepts every write, and keeps the system's first error."""

    refused: BaseException | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data)
        try:
            while len(rest):  # the system may write a part only
                rest = rest[super().write(rest) :]
        except BaseException as error:  # also Ctrl-C, which HDF5 would swallow
            self.refused = self.refused or error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.refused = self.refused or error
            return self.tell()


def make_room(
    file: h5py.File,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    filters: Mapping[str, Any] | None = None,
) -> None:
    """Make a data set [n, ...]: contiguous, or with h5py's `filters` in chunks of `chunk_rows` rows."""
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
