"""Joining the world of ranks that a launcher made, and what MPI needs to be told before."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from mpifl.common import InputError
from mpifl.wire import HERE, RANKS_PER_NODE, Ground, Transport
from mpifl.wire.launching import libraries
from mpifl.wire.launching.deaths import joined_in_time, met_or_lost, survivable

_ALONE = {"OMPI_MCA_btl": "self"}
"""Without a launcher Open MPI 5 leaves a segment of 16 MB in /dev/shm behind, if it may make one."""
_WORKSTATION = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "^ofi,uct",
    "OMPI_MCA_mtl": "^ofi",
    "OMPI_MCA_osc": "^ucx",
}
"""What lets Open MPI start in 0.2 s instead of 1.2 s where no fabric is needed."""


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
    with _settled_for_one_node(libraries.finds_others(vendor, major)), joined_in_time(HERE):
        if not mpi.Is_initialized():
            mpi.Init_thread()
        if mpi.COMM_WORLD.Get_size() == 1 and libraries.promised() > 1:
            raise libraries.alone(library())
        _unname_segments()
        return met(HERE)


def met(ground: Ground) -> Transport:
    """Meet the other ranks of the world that this ground lies under.

    Raises:
        InputError: the environment names no number of ranks for a node.
        StartLost: a rank has died meanwhile.
    """
    with met_or_lost(ground.mpi.COMM_WORLD, ground):
        return Transport(ground.mpi.COMM_WORLD.Dup(), _ranks_per_node(), ground)


def _unname_segments() -> None:
    """Remove the names of what MPICH 5 shares in /dev/shm: a killed rank would leave it there.

    The ranks of a node have mapped it when MPI_Init returns to one of them, and the mappings stay.
    """
    with contextlib.suppress(OSError):  # not Linux
        for line in Path("/proc/self/maps").read_text().splitlines():
            if found := re.search(r"/dev/shm/mpich_shm_\w+$", line):
                Path(found[0]).unlink(missing_ok=True)


def _ranks_per_node() -> int | None:
    given = os.environ.get(RANKS_PER_NODE)
    if given is not None and not (given.isdigit() and int(given)):
        raise InputError(f"{RANKS_PER_NODE}={given}: is not a number of ranks; take 1 or more, or unset it")
    return int(given) if given else None


def abort_world(code: int) -> None:
    """End every rank of the world at once."""
    mpi = HERE.mpi
    if mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.Get_size() > 1:
        # MPI_Abort hangs there, and a rank that merely left would be taken for dead and survived
        if survivable():
            HERE.end_launcher()
            leave(code)
        mpi.COMM_WORLD.Abort(code)


def die() -> None:
    """End this rank alone, where deaths end nobody else."""
    if survivable():
        HERE.die()


def leave(code: int) -> NoReturn:
    """Exit; where ranks may have died or hang without MPI_Finalize, which would wait for them."""
    HERE.leave(code)


def library() -> str:
    """Name the MPI library in use."""
    return libraries.name_of(HERE.mpi)


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
