"""Deaths of ranks, where MPI reports them: MPI's errors become RankLost, and the survivors meet again.

Under `mpirun --with-ft ulfm`, Open MPI 5 lets the other ranks live when one dies (User Level Failure
Mitigation). A rank that notices a death revokes the communicator, so that all others notice it, too. All
survivors then meet in a smaller communicator.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

from mpifl.common import RankLost, StartLost, ranks_named

if TYPE_CHECKING:
    from mpifl.wire import Platform

_LAUNCHERS_WORD = "OMPI_MCA_mpi_ft_enable"
"""The variable that `--with-ft ulfm` sets. MPI's own ULFM functions do not show it: they work under any
launcher."""
_TRIES = 10
JOIN_SECONDS = "MPIFL_JOIN_SECONDS"
"""Environment variable: seconds that a rank waits for the others at the start, where ranks survive deaths."""
_JOIN_SECONDS = 120.0
DETECTION_TIMEOUT = 20.0
"""Seconds to wait for MPI to confirm a suspected failure."""


def survivable() -> bool:
    """Return whether the launcher lets the other ranks live when one dies."""
    return os.environ.get(_LAUNCHERS_WORD) == "1"


@contextlib.contextmanager
def joined_in_time(platform: Platform) -> Iterator[None]:
    """End this rank if the others do not join in time: MPI_Init notices no death and would wait for ever."""
    if survivable():
        given = os.environ.get(JOIN_SECONDS, "")
        seconds = float(given) if given.isdigit() and int(given) else _JOIN_SECONDS
        platform.alarm(seconds)
    try:
        yield
    finally:
        if survivable():
            platform.alarm(0)


@contextlib.contextmanager
def met_or_lost(comm: Any, platform: Platform) -> Iterator[None]:
    """Raise StartLost if a rank dies while the ranks of a communicator meet.

    After such a death some ranks may have met, and others not.
    """
    watch = DeathWatch(comm, platform)
    try:
        yield
    except (RankLost, watch.error) as error:
        if not isinstance(error, RankLost) and not isinstance(watch.translate_error(error), RankLost):
            raise
        gone = watch.failed()
        what = f"{ranks_named(gone) if gone else 'a rank'} died before all ranks had met"
        first = set(range(comm.Get_rank())) <= set(gone)
        raise StartLost(f"{what}; run the same command again", speaks=first) from None


class DeathWatch:
    """Watches the ranks of a communicator for deaths; does nothing where a death ends the job anyway."""

    def __init__(self, comm: Any, platform: Platform) -> None:
        self._comm, self._platform, mpi = comm, platform, platform.mpi
        self._on = survivable() and comm.Get_size() > 1
        self._signs = (mpi.ERR_PROC_FAILED, mpi.ERR_PROC_FAILED_PENDING, mpi.ERR_REVOKED)
        self.error: Any = mpi.Exception
        """The class of MPI's errors."""
        if self._on:
            comm.Set_errhandler(mpi.ERRORS_RETURN)

    def check(self) -> None:
        """Raise RankLost if a rank has died or another rank has noticed a death. This sends nothing."""
        if self._on and (self._comm.Is_revoked() or self._comm.Get_failed().size):
            self._comm.Revoke()
            raise RankLost

    def failed(self) -> list[int]:
        """Return the ranks that have died, as far as this rank knows."""
        group = self._comm.Get_failed()
        found = self._platform.mpi.Group.Translate_ranks(
            group, list(range(group.size)), self._comm.Get_group()
        )
        return sorted(map(int, found))

    def wait_for_failure(self) -> None:
        """Wait until MPI confirms a suspected death, then raise RankLost; return if it does not in time."""
        deadline = self._platform.clock() + DETECTION_TIMEOUT
        while self._on and self._platform.clock() < deadline:
            self.check()
            self._platform.mpi.COMM_SELF.Iprobe()  # MPI notices a death only while it is called
            self._platform.sleep(1e-3)

    def translate_error(self, error: Exception) -> Exception:
        """Return RankLost if an error comes from a death, and alarm all other ranks; else return the error.

        A transfer from a process that has just died may also fail with an error that is not about deaths.
        """
        if not self._on:
            return error
        told = isinstance(error, self.error) and self.error.Get_error_class(error) in self._signs
        if not (told or self._comm.Is_revoked() or self._comm.Get_failed().size):
            return error
        self._comm.Revoke()
        return RankLost()


def survivors(comm: Any, mpi: Any) -> tuple[Any, list[int]]:
    """Return a communicator of the living ranks, and the rank that each had before.

    All living ranks call this together. A rank that computes joins when it next looks for a message.
    """
    comm.Revoke()
    living = _shrunk(comm, mpi)
    living.Set_errhandler(mpi.ERRORS_RETURN)
    group, before = living.Get_group(), comm.Get_group()
    return living, [int(rank) for rank in mpi.Group.Translate_ranks(group, list(range(group.size)), before)]


def renumbered(ranks: Set[int], new: Mapping[int, int]) -> set[int]:
    """Return the new numbers of ranks after a death, without the dead.

    Args:
        ranks: The old numbers.
        new: The new number of each survivor by its old one.
    """
    return {new[rank] for rank in ranks if rank in new}


def _shrunk(comm: Any, mpi: Any) -> Any:
    for _ in range(_TRIES - 1):
        with contextlib.suppress(mpi.Exception):  # another rank died meanwhile
            return comm.Shrink()
    return comm.Shrink()
