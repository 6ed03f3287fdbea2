"""Facts about the MPI library in use: its version and what it can do."""

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
    """The provided thread level: single, funneled, serialized or multiple."""
    revokes: bool
    """Whether a communicator can be revoked, the first thing that ULFM needs."""
    tolerant: bool
    """Whether the launcher lets the other ranks live when one dies (`mpirun --with-ft ulfm`)."""
    cuda: bool | None
    """Whether the library takes buffers on GPUs; None if it does not say."""


def facts() -> MPIFacts:
    """Return the facts about this rank's library; the rank must have joined a world."""
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
    """Try to revoke a communicator of this rank alone: only a call shows whether the library can."""
    from mpi4py import MPI

    own = MPI.COMM_SELF.Dup()
    try:
        own.Revoke()
    except (NotImplementedError, MPI.Exception):
        own.Free()
        return False
    return True  # the revoked communicator stays until the process ends


def _cuda() -> bool | None:
    """Ask by the extension of Open MPI or of MPICH; each has its own."""
    file = library_file()
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(str(file)).MPIX_Query_cuda_support())
    with contextlib.suppress(OSError, AttributeError):
        answer = ctypes.c_int(0)
        # 0: MPIX_GPU_SUPPORT_CUDA
        if ctypes.CDLL(str(file)).MPIX_GPU_query_support(0, ctypes.byref(answer)) == 0:
            return bool(answer.value)
    return None
