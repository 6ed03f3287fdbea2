"""Joining the world of ranks that a launcher started, and the MPI settings that must be made before."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from mpifl.common import InputError
from mpifl.wire import HERE, RANKS_PER_NODE, Platform, Transport
from mpifl.wire.launching import libraries
from mpifl.wire.launching.deaths import joined_in_time, met_or_lost, survivable

_ALONE = {"OMPI_MCA_btl": "self"}
"""Keeps Open MPI 5 from making a segment of 16 MB in /dev/shm, which it leaves behind without a launcher."""
_WORKSTATION = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "^ofi,uct",
    "OMPI_MCA_mtl": "^ofi",
    "OMPI_MCA_osc": "^ucx",
}
"""Settings with which Open MPI starts in 0.2 s instead of 1.2 s, for one node that needs no network."""


def world() -> Transport:
    """Join the MPI world that the launcher made.

    Raises:
        InputError: there is no MPI library, or the launcher belongs to another MPI, so that each rank is
            alone.
        StartLost: a rank has died meanwhile.
    """
    mpi = libraries.load()
    vendor, (major, *_) = mpi.get_vendor()
    if not mpi.Is_initialized():  # a user's script may have initialized MPI
        libraries.hold_to_launcher(vendor, major, library())
    with _settled_for_one_node(libraries.finds_others(vendor, major)), joined_in_time(HERE):
        if not mpi.Is_initialized():
            mpi.Init_thread()
        if mpi.COMM_WORLD.Get_size() == 1 and libraries.promised() > 1:
            raise libraries.alone(library())
        _unname_segments()
        return met(HERE)


def met(platform: Platform) -> Transport:
    """Meet the other ranks of this platform's world, and return this rank's end of the wire.

    Raises:
        InputError: `MPIFL_RANKS_PER_NODE` is not a number of ranks.
        StartLost: a rank has died meanwhile.
    """
    with met_or_lost(platform.mpi.COMM_WORLD, platform):
        return Transport(platform.mpi.COMM_WORLD.Dup(), _ranks_per_node(), platform)


def _unname_segments() -> None:
    """Remove the names of MPICH 5's shared memory in /dev/shm: a killed rank would leave it there.

    When MPI_Init returns at one rank, all ranks of the node have mapped this memory. The mappings stay.
    """
    with contextlib.suppress(OSError):  # not Linux
        for line in Path("/proc/self/maps").read_text().splitlines():
            if found := re.search(r"/dev/shm/mpich_shm_\w+$", line):
                Path(found[0]).unlink(missing_ok=True)


def _ranks_per_node() -> int | None:
    given = os.environ.get(RANKS_PER_NODE)
    if given is not None and not (given.isdigit() and int(given)):
        raise InputError(f"{RANKS_PER_NODE}={given}: is not a number of ranks; use 1 or more, or unset it")
    return int(given) if given else None


def abort_world(code: int) -> None:
    """End every rank of the world at once."""
    mpi = HERE.mpi
    if mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.Get_size() > 1:
        # here MPI_Abort hangs, and the other ranks would survive this one if it only left
        if survivable():
            HERE.end_launcher()
            leave(code)
        mpi.COMM_WORLD.Abort(code)


def die() -> None:
    """End this rank, but only where the other ranks survive its death."""
    if survivable():
        HERE.die()


def leave(code: int) -> NoReturn:
    """Exit; without MPI_Finalize where ranks may have died or hang, since it would wait for them."""
    HERE.leave(code)


def library() -> str:
    """Name the MPI library in use."""
    return libraries.name_of(HERE.mpi)


@contextlib.contextmanager
def _settled_for_one_node(launched: bool) -> Iterator[None]:
    """Set up Open MPI for one node if all ranks surely run on one.

    Networks of clusters and settings of the user stay as they are. The settings are removed afterwards: they
    are not for programs that this one starts.
    """
    size = os.environ.get("OMPI_COMM_WORLD_SIZE")  # unknown under srun, which may span nodes
    on_one_node = size is not None and size == os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    wanted = {**_WORKSTATION, **({} if launched else _ALONE)} if not launched or on_one_node else {}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    yield
    for name in added:
        os.environ.pop(name, None)
