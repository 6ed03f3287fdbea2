"""Vectors that the other ranks of a node can read where they lie.

Each segment is an anonymous file in memory, which its owner alone sizes, and which is gone with the last
process that maps it: nothing is left behind, however ranks end. Another rank opens it by its owner's process
and file number. It is sealed at its size: a reader of a file that its owner could shorten would die of
SIGBUS.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import weakref
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpifl.wire.messages import DTYPES

HUGE = 2 << 20
"""Bytes from which on large pages are asked for."""
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW if hasattr(fcntl, "F_SEAL_SHRINK") else 0
"""What keeps a segment at its size, whatever its owner does."""


class Memory:
    """Hands out vectors; one that nobody refers to any more is handed out again.

    Attributes:
        shared: Whether other ranks can read them.
        everywhere: Whether all other ranks can.
    """

    def __init__(
        self, *, shared: bool, everywhere: bool = True, segments: type[Segment] | None = None
    ) -> None:
        self.shared, self.everywhere = shared, everywhere
        self._segments = segments or Segment
        self._free: defaultdict[int, list[Segment]] = defaultdict(list)
        self._lent: dict[int, Segment] = {}
        self._attached: dict[tuple[int, int], Segment] = {}

    def empty(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return a vector of any content, in shared memory if there is such."""
        nbytes = length * dtype.itemsize
        if not self.shared or nbytes == 0:
            return torch.empty(length, dtype=dtype)
        free = self._free[nbytes]
        segment = free.pop() if free else self._segments.made(nbytes)
        array = np.frombuffer(segment.map, np.uint8)
        vector = torch.from_numpy(array).view(dtype)
        self._lent[vector.data_ptr()] = segment
        weakref.finalize(array, self._return, vector.data_ptr()).atexit = False
        return vector

    def move_to_shared_memory(self, vector: Tensor) -> Tensor:
        """Return the vector itself if other ranks can read it or none can read anything,
        else a copy that they can."""
        if not self.shared or self.handle(vector):
            return vector
        return self.empty(len(vector), vector.dtype).copy_(vector)

    def handle(self, vector: Tensor) -> int:
        """Return the number by which other ranks find this vector or the part that it begins;
        0 if they cannot."""
        segment = self._lent.get(vector.data_ptr())
        return segment.number if segment is not None and segment.nbytes >= vector.nbytes else 0

    def attach(self, process: int, handle: int, length: int, dtype: torch.dtype) -> Tensor:
        """Return the vector that another rank of the node has under this handle.

        Raises:
            OSError: there is none, it is empty or shorter, or it is no sealed anonymous file.
        """
        nbytes = length * dtype.itemsize
        if nbytes == 0:
            return torch.empty(0, dtype=dtype)
        if (process, handle) not in self._attached:
            self._attached[process, handle] = self._segments.opened(process, handle)
        segment = self._attached[process, handle]
        if segment.nbytes < nbytes:
            raise OSError(f"segment {handle} of process {process} has {segment.nbytes} bytes, not {nbytes}")
        return torch.frombuffer(segment.map, dtype=dtype, count=length)

    def reach(self, processes: Collection[int], everywhere: bool) -> None:
        """Take note of the other processes that share the node from now on;
        segments of the dead are forgotten."""
        self.shared, self.everywhere = bool(processes), everywhere
        for process, handle in list(self._attached):
            if process not in processes:
                self._attached.pop((process, handle)).unpin()

    def pinned(self, vector: Tensor) -> Tensor:
        """Lock the pages of the segment that a vector begins, so that a GPU copies at full speed; return it.

        Other memory is left as it is: what is freed while it is locked may be mapped anew while a GPU still
        reads the old pages.
        """
        address = vector.data_ptr()
        attached = (one for one in self._attached.values() if one.address == address)
        segment = self._lent.get(address) or next(attached, None)
        if segment is not None:
            segment.pin()
        return vector

    def empty_pinned(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return a vector of any content for what comes from a GPU, in shared memory if there is such."""
        if self.shared:
            return self.pinned(self.empty(length, dtype))
        return torch.empty(length, dtype=dtype, pin_memory=cudart() is not None)

    def _return(self, address: int) -> None:
        segment = self._lent.pop(address)
        self._free[segment.nbytes].append(segment)


class Segment:
    """A mapped file in memory. Its number is never used again while its owner lives: it is never closed."""

    def __init__(self, number: int, file: int, nbytes: int) -> None:
        self.number, self.nbytes = number, nbytes
        self.map = mmap.mmap(file, nbytes)
        self.address = torch.frombuffer(self.map, dtype=torch.uint8).data_ptr()
        self._pinned = False
        if nbytes >= HUGE:
            with contextlib.suppress(AttributeError, OSError):
                self.map.madvise(mmap.MADV_HUGEPAGE)

    def pin(self) -> None:
        """Lock the pages, once; where that cannot be, copies are slower and all the same."""
        if not self._pinned and (runtime := cudart()) is not None:
            self._pinned = True
            runtime.cudaHostRegister(self.address, self.nbytes, 0)

    def unpin(self) -> None:
        """Let go of the pages, before they are unmapped."""
        if self._pinned and (runtime := cudart()) is not None:
            self._pinned = False
            runtime.cudaHostUnregister(self.address)

    @classmethod
    def made(cls, nbytes: int) -> Segment:
        """Return a new segment of this process."""
        number = os.memfd_create("mpifl", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(number, nbytes)
        fcntl.fcntl(number, fcntl.F_ADD_SEALS, SEALS)
        return cls(number, number, nbytes)

    @classmethod
    def opened(cls, process: int, number: int) -> Segment:
        """Return the segment of a process by its number.

        Raises:
            OSError: there is none, it is empty, or it is no sealed anonymous file.
        """
        path = Path(f"/proc/{process}/fd/{number}")
        # opening a device or a pipe may have effects of its own
        if not str(path.readlink()).startswith("/memfd:"):
            raise OSError(f"{path} is no anonymous file")
        file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if fcntl.fcntl(file, fcntl.F_GET_SEALS) & SEALS != SEALS:
                raise OSError(f"{path} is not sealed at its size")
            if not (size := os.fstat(file).st_size):
                raise OSError(f"{path} is empty")
            return cls(number, file, size)
        finally:
            os.close(file)


def cudart() -> Any:
    """Return CUDA's runtime if this process computes by it, else None."""
    return torch.cuda.cudart() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]


def probe(memory: Memory, process: int, handle: int) -> bool:
    """Return whether a vector of one int64 that another rank made, holding its process, can be read."""
    with contextlib.suppress(OSError, ValueError):
        return int(memory.attach(process, handle, 1, DTYPES["int64"])[0]) == process
    return False


def possible() -> bool:
    """Return whether this system has anonymous files."""
    return hasattr(os, "memfd_create")


def pieces_of(length: int, size: int) -> Iterator[slice]:
    """Yield the slices of at most `size` elements that cover a vector."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))
