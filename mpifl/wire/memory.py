"""Shared memory: vectors that the other ranks of a node can read in place.

Each segment is an anonymous file in memory. It is gone with the last process that maps it, so nothing is left
behind however ranks end. Another rank opens it by its owner's process and file number. A kernel seal fixes
its size: if an owner could shorten the file, its readers would die of SIGBUS.
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
"""Bytes of the smallest segment for which large pages are requested."""
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW if hasattr(fcntl, "F_SEAL_SHRINK") else 0
"""Kernel seals that fix a segment's size, even for its owner."""


class Memory:
    """Hands out vectors, and reuses the memory of a vector that nobody refers to any more.

    Attributes:
        shared: Whether other ranks can read the vectors.
        everywhere: Whether all other ranks can read them.
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
        """Return an uninitialized vector, in shared memory if there is any."""
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
        """Return a copy of a vector in shared memory.

        Return the vector itself if it lies there already or there is no shared memory.
        """
        if not self.shared or self.handle(vector):
            return vector
        return self.empty(len(vector), vector.dtype).copy_(vector)

    def handle(self, vector: Tensor) -> int:
        """Return the number by which other ranks find this vector, 0 if they cannot.

        The vector must begin where its segment begins.
        """
        segment = self._lent.get(vector.data_ptr())
        return segment.number if segment is not None and segment.nbytes >= vector.nbytes else 0

    def attach(self, process: int, handle: int, length: int, dtype: torch.dtype) -> Tensor:
        """Return the vector that another rank of the node has under this handle.

        Raises:
            OSError: there is no such segment, it is empty or too short, or it is no sealed anonymous file.
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
        """Note which other processes share the node from now on, and forget the segments of dead ones.

        Args:
            processes: The other processes of this node.
            everywhere: Whether all ranks are on this node.
        """
        self.shared, self.everywhere = bool(processes), everywhere
        for process, handle in list(self._attached):
            if process not in processes:
                self._attached.pop((process, handle)).unpin()

    def pinned(self, vector: Tensor) -> Tensor:
        """Return a vector with the pages of its segment locked, so that a GPU copies at full speed.

        The vector must begin where its segment begins. Memory outside segments is not locked, since it may be
        freed. Its addresses could then be mapped anew while a GPU still reads the old pages.
        """
        address = vector.data_ptr()
        attached = (one for one in self._attached.values() if one.address == address)
        segment = self._lent.get(address) or next(attached, None)
        if segment is not None:
            segment.pin()
        return vector

    def empty_pinned(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return an uninitialized vector for data from a GPU, in shared memory if there is any."""
        if self.shared:
            return self.pinned(self.empty(length, dtype))
        return torch.empty(length, dtype=dtype, pin_memory=cudart() is not None)

    def _return(self, address: int) -> None:
        segment = self._lent.pop(address)
        self._free[segment.nbytes].append(segment)


class Segment:
    """A mapped file in memory. Its owner never closes it, so its number is unique while the owner lives."""

    def __init__(self, number: int, file: int, nbytes: int) -> None:
        self.number, self.nbytes = number, nbytes
        self.map = mmap.mmap(file, nbytes)
        self.address = torch.frombuffer(self.map, dtype=torch.uint8).data_ptr()
        self._pinned = False
        if nbytes >= HUGE:
            with contextlib.suppress(AttributeError, OSError):
                self.map.madvise(mmap.MADV_HUGEPAGE)

    def pin(self) -> None:
        """Lock the pages, once. If this fails, copies are slower but correct."""
        if not self._pinned and (runtime := cudart()) is not None:
            self._pinned = True
            runtime.cudaHostRegister(self.address, self.nbytes, 0)

    def unpin(self) -> None:
        """Unlock the pages; call this before they are unmapped."""
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
            OSError: there is no such segment, it is empty, or it is no sealed anonymous file.
        """
        path = Path(f"/proc/{process}/fd/{number}")
        # opening a device or a pipe may have effects of its own
        if not str(path.readlink()).startswith("/memfd:"):
            raise OSError(f"{path} is not an anonymous file")
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
    """Return CUDA's runtime if this process uses CUDA, else None."""
    return torch.cuda.cudart() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]


def probe(memory: Memory, process: int, handle: int) -> bool:
    """Return whether this rank can read another rank's memory.

    The other rank has made a vector of one int64 that holds the number of its process.
    """
    with contextlib.suppress(OSError, ValueError):
        return int(memory.attach(process, handle, 1, DTYPES["int64"])[0]) == process
    return False


def possible() -> bool:
    """Return whether this system has anonymous files, and so shared memory."""
    return hasattr(os, "memfd_create")


def pieces_of(length: int, size: int) -> Iterator[slice]:
    """Yield the slices of at most `size` elements that cover a vector."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))
