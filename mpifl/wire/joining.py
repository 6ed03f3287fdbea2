"""Joining the world of ranks that a launcher made, and what MPI needs to be told before."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from mpifl.common import InputError
from mpifl.wire import libraries
from mpifl.wire.deaths import joined_in_time, met_or_lost, survivable
from mpifl.wire.nodes import RANKS_PER_NODE
from mpifl.wire.transport import Transport

_DAEMONS = ("prterun", "prted", "prte", "mpirun", "mpiexec")
_GRACE = 5.0
"""Seconds in which the launcher ends its ranks."""
_ALONE = {"OMPI_MCA_btl": "self"}
"""Without a launcher Open MPI 5 leaves a segment of 16 MB in /dev/shm behind, if it may make one."""
_WORKSTATION = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "^ofi,uct",
    "OMPI_MCA_mtl": "^ofi",
    "OMPI_MCA_osc": "^ucx",
}
"""What lets Open MPI start in 0.2 s instead of 1.2 s where no fabric is needed."""
_hanging: list[int | None] = []
_leaving: list[int] = []
_farewell = 0.0


def world() -> Transport:
    """Join the MPI world that the launcher made.

    Raises:
        InputError: there is no MPI library, or the launcher is another MPI's and made lonely ranks.
        StartLost: a rank has died meanwhile.
    """
    mpi = libraries.load()
    vendor, (major, *_) = mpi.get_vendor()
    if not mpi.Is_initialized():  # a script may have done so
        libraries.hold_to_launcher(vendor, major, library())
    with _settled_for_one_node(libraries.finds_others(vendor, major)), joined_in_time():
        if not mpi.Is_initialized():
            mpi.Init_thread()
        if mpi.COMM_WORLD.Get_size() == 1 and libraries.promised() > 1:
            raise libraries.alone(library())
        with met_or_lost(mpi.COMM_WORLD):
            return Transport(mpi.COMM_WORLD.Dup(), _ranks_per_node())


def _ranks_per_node() -> int | None:
    given = os.environ.get(RANKS_PER_NODE)
    if given is not None and not (given.isdigit() and int(given)):
        raise InputError(f"{RANKS_PER_NODE}={given}: is not a number of ranks; take 1 or more, or unset it")
    return int(given) if given else None


def abort_world(code: int) -> None:
    """End every rank of the world at once."""
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized() and MPI.COMM_WORLD.Get_size() > 1:
        # MPI_Abort hangs there, and a rank that merely left would be taken for dead and survived
        if survivable():
            _end_launcher()
            leave(code)
        MPI.COMM_WORLD.Abort(code)


def die() -> None:
    """End this rank alone, where deaths end nobody else: by a signal, since the launcher tells nobody of a
    rank that exits."""
    if survivable():
        sys.stdout.flush()
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def mark_unresponsive(processes: Sequence[int | None]) -> None:
    """Remember ranks that hang, so that this one does not wait for them when it leaves.

    Args:
        processes: Theirs, None for one on another node.
    """
    _hanging.extend(processes)


def wait_for_exit(processes: Sequence[int], seconds: float) -> None:
    """Have this rank wait so long for others to leave before it leaves itself, and then end those that have
    not.

    Only where deaths end nobody else: elsewhere MPI_Finalize waits for them.
    """
    global _farewell
    _farewell = seconds
    for process in processes if survivable() and hasattr(os, "pidfd_open") else ():
        # it is gone, or this kernel or a container's filter does not have the call
        with contextlib.suppress(OSError):
            _leaving.append(os.pidfd_open(process))


def leave(code: int) -> NoReturn:
    """Exit; where ranks may have died or hang without MPI_Finalize, which would wait for them."""
    if _hanging and not survivable():
        from mpi4py import MPI

        sys.stdout.flush()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(code)  # the launcher ends them, and its exit code is this one
    _end_hanging()
    if survivable():
        sys.stdout.flush()
        sys.stderr.flush()
        _see_off()
        os._exit(code)
    sys.exit(code)


def _end_hanging() -> None:
    for process in filter(None, _hanging):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    if None in _hanging:
        _end_launcher()


def _see_off() -> None:
    """Wait for those that `wait_for_exit` names, and end who is late."""
    until = time.monotonic() + _farewell
    for process in _leaving:
        if not select.select([process], [], [], max(until - time.monotonic(), 0.0))[0]:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(process, signal.SIGKILL)


def _end_launcher() -> None:
    """Ask the launcher, which started this process, to end all others."""
    parent = os.getppid()
    with contextlib.suppress(OSError):
        if Path(f"/proc/{parent}/comm").read_text().strip() in _DAEMONS:
            os.kill(parent, signal.SIGTERM)
            time.sleep(_GRACE)


def library() -> str:
    """Name the MPI library in use."""
    from mpi4py import MPI

    return libraries.name_of(MPI)


@contextlib.contextmanager
def _settled_for_one_node(launched: bool) -> Iterator[None]:
    """Set Open MPI up for one node where that is sure; a cluster's fabric, and what the user has set, is left
    alone.

    The settings are gone afterwards: they are not for programs that this one starts.
    """
    size = os.environ.get("OMPI_COMM_WORLD_SIZE")  # unknown under srun, which may span nodes
    on_one_node = size is not None and size == os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    wanted = {**_WORKSTATION, **({} if launched else _ALONE)} if not launched or on_one_node else {}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    yield
    for name in added:
        os.environ.pop(name, None)
