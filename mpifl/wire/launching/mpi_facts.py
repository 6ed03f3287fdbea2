"""What the MPI library in use says of itself, and what it can do."""

from __future__ import annotations

import contextlib
import ctypes

from mpifl.wire import Message
from mpifl.wire.launching.deaths import survivable
from mpifl.wire.launching.launcher import library_file


class MPIFacts(Message):
    """The MPI library as one rank sees it."""

    library: str
    """Vendor and version."""
    vendor: str
    standard: str
    threads: str
    """The level that was provided: single, funneled, serialized, multiple."""
    revokes: bool
    """Whether a communicator can be revoked: what ULFM needs first."""
    tolerant: bool
    """Whether the launcher leaves the other ranks alive when one dies (`mpirun --with-ft ulfm`)."""
    cuda: bool | None
    """Whether it takes buffers on GPUs; None if it does not say."""


def facts() -> MPIFacts:
    """Ask the library; every rank for itself, in a world that it has joined."""
    from mpi4py import MPI

    vendor, version = MPI.get_vendor()
    levels = ("single", "funneled", "serialized", "multiple")
    known = (MPI.THREAD_SINGLE, MPI.THREAD_FUNNELED, MPI.THREAD_SERIALIZED, MPI.THREAD_MULTIPLE)
    return MPIFacts(
        library=f"{vendor} {'.'.join(map(str, version))}",
        vendor=vendor,
        standard=".".join(map(str, MPI.Get_version())),
        threads=dict(zip(known, levels, strict=True)).get(MPI.Query_thread(), "unknown"),
        revokes=_revokes(),
        tolerant=survivable(),
        cuda=_cuda(),
    )


def _revokes() -> bool:
    """Try it on a communicator of this rank alone: where it is missing,
    mpi4py only says so when it is called."""
    from mpi4py import MPI

    own = MPI.COMM_SELF.Dup()
    try:
        own.Revoke()
    except (NotImplementedError, MPI.Exception):
        own.Free()
        return False
    return True  # a revoked communicator is left to the end of the process


def _cuda() -> bool | None:
    """Ask by the extension that Open MPI and MPICH have for it, each its own."""
    file = library_file()
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(str(file)).MPIX_Query_cuda_support())
    with contextlib.suppress(OSError, AttributeError):
        answer = ctypes.c_int(0)
        # 0: MPIX_GPU_SUPPORT_CUDA
        if ctypes.CDLL(str(file)).MPIX_GPU_query_support(0, ctypes.byref(answer)) == 0:
            return bool(answer.value)
    return None
