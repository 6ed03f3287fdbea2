"""Ranks that die, where MPI tells of it: its errors become RankLost, and the survivors find together again.

Open MPI 5 under `mpirun --with-ft ulfm` ends nobody but the dead (User Level Failure Mitigation). Whoever
notices a death revokes the communicator, so that all others notice, and all survivors meet in a smaller one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

from mpifl.common import RankLost, StartLost, ranks_named

if TYPE_CHECKING:
    from mpifl.wire import Ground

_LAUNCHERS_WORD = "OMPI_MCA_mpi_ft_enable"
"""What `--with-ft ulfm` sets. MPI's functions for it answer under any launcher."""
_TRIES = 10
JOIN_SECONDS = "MPIFL_JOIN_SECONDS"
"""Environment variable: how long a rank waits for the others at the start, where deaths end nobody else."""
_JOIN_SECONDS = 120.0
DETECTION_TIMEOUT = 20.0
"""Seconds to wait for MPI to confirm a suspected failure."""


def survivable() -> bool:
    """Whether the launcher leaves the other ranks alone when one dies."""
    return os.environ.get(_LAUNCHERS_WORD) == "1"


@contextlib.contextmanager
def joined_in_time(ground: Ground) -> Iterator[None]:
    """Die rather than wait for ever for a rank that died before there was a world;
    MPI_Init notices no death."""
    if survivable():
        given = os.environ.get(JOIN_SECONDS, "")
        seconds = float(given) if given.isdigit() and int(given) else _JOIN_SECONDS
        ground.alarm(seconds)
    try:
        yield
    finally:
        if survivable():
            ground.alarm(0)


@contextlib.contextmanager
def met_or_lost(comm: Any, ground: Ground) -> Iterator[None]:
    """Have a death among the ranks of a communicator, who are about to meet, raise StartLost: some may have
    met, and others not."""
    watch = DeathWatch(comm, ground)
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
    """Watches the ranks of a communicator; where deaths end the job anyway it sees none and costs nothing."""

    def __init__(self, comm: Any, ground: Ground) -> None:
        self._comm, self._ground, mpi = comm, ground, ground.mpi
        self._on = survivable() and comm.Get_size() > 1
        self._signs = (mpi.ERR_PROC_FAILED, mpi.ERR_PROC_FAILED_PENDING, mpi.ERR_REVOKED)
        self.error: Any = mpi.Exception
        """What MPI raises."""
        if self._on:
            comm.Set_errhandler(mpi.ERRORS_RETURN)

    def check(self) -> None:
        """Raise RankLost if a rank has died or another has noticed a death; nothing is sent for this."""
        if self._on and (self._comm.Is_revoked() or self._comm.Get_failed().size):
            self._comm.Revoke()
            raise RankLost

    def failed(self) -> list[int]:
        """Return the ranks that this one knows to have died."""
        group = self._comm.Get_failed()
        found = self._ground.mpi.Group.Translate_ranks(group, list(range(group.size)), self._comm.Get_group())
        return sorted(map(int, found))

    def wait_for_failure(self) -> None:
        """Wait until MPI confirms a suspected failure, then raise RankLost; return if it does not."""
        deadline = self._ground.clock() + DETECTION_TIMEOUT
        while self._on and self._ground.clock() < deadline:
            self.check()
            self._ground.mpi.COMM_SELF.Iprobe()  # MPI hears of nothing unless it is called to make progress
            self._ground.sleep(1e-3)

    def translate_error(self, error: Exception) -> Exception:
        """Return RankLost, with all other ranks alarmed, for what MPI raises when a rank dies; else the error
        itself.

        A transfer from a process that has just died may fail in another way than by the error meant for it.
        """
        if not self._on:
            return error
        told = isinstance(error, self.error) and self.error.Get_error_class(error) in self._signs
        if not (told or self._comm.Is_revoked() or self._comm.Get_failed().size):
            return error
        self._comm.Revoke()
        return RankLost()


def survivors(comm: Any, mpi: Any) -> tuple[Any, list[int]]:
    """Return a communicator of the ranks that live, and the rank that each had; all who live call this
    together.

    A rank that computes comes when it next looks for a message.
    """
    comm.Revoke()
    living = _shrunk(comm, mpi)
    living.Set_errhandler(mpi.ERRORS_RETURN)
    group, before = living.Get_group(), comm.Get_group()
    return living, [int(rank) for rank in mpi.Group.Translate_ranks(group, list(range(group.size)), before)]


def renumbered(ranks: Set[int], new: Mapping[int, int]) -> set[int]:
    """Return ranks that were noted before a death by their numbers after it, without the dead.

    Args:
        ranks: Their old numbers.
        new: The new number of each survivor by its old one.
    """
    return {new[rank] for rank in ranks if rank in new}


def _shrunk(comm: Any, mpi: Any) -> Any:
    for _ in range(_TRIES - 1):
        with contextlib.suppress(mpi.Exception):  # one more died meanwhile
            return comm.Shrink()
    return comm.Shrink()
