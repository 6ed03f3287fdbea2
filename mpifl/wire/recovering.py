"""Recovery after a death that MPI survives: the survivors meet in a smaller world."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from mpifl.common import RankLost
from mpifl.wire.launching import DeathWatch, renumbered, survivors
from mpifl.wire.memory import Memory
from mpifl.wire.nodes import left_of, split_leaders
from mpifl.wire.pipeline import Pipelines
from mpifl.wire.rank_platform import HERE, Platform


class Recovering(Pipelines):
    """One rank's end of the wire, whose world may shrink to the survivors of a death.

    Attributes:
        rank: This rank.
        size: How many ranks there are.
        origins: The rank that each of them had when the world began.
        agreed: How often all ranks have agreed to begin a training, as far as this rank knows. After a death
            it is the greatest number that any survivor knows.
        silent: Leaders of nodes whose sums did not come in time.
    """

    origins: Sequence[int] = (0,)
    agreed = 0

    def __init__(self, comm: Any, ranks_per_node: int | None = None, platform: Platform = HERE) -> None:
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.origins = self._founders = list(range(self.size))
        super().__init__(comm, ranks_per_node, platform)
        shared, everywhere = len(self.nodes.mine) > 1, len(self.nodes) == 1
        self.memory = Memory(shared=shared, everywhere=everywhere, segments=platform.segments)
        self._early: defaultdict[int, deque[bytes]] = defaultdict(deque)
        self.silent: set[int] = set()

    @property
    def lost(self) -> list[int]:
        """The dead ranks, by the numbers that they had when the world began."""
        return sorted(set(self._founders) - set(self.origins))

    def recover(self) -> dict[int, int]:
        """Meet the other survivors of a death in a smaller world, where ranks have new numbers.

        All survivors call this.

        Returns:
            The new rank of each survivor by its old one.
        """
        before = self.origins
        while not self._shrunk():
            pass
        others = [neighbour.process for rank, neighbour in self.nodes.neighbours.items() if rank != self.rank]
        self.memory.reach(others, len(self.nodes) == 1)
        self._early.clear()
        self._abandoned += [request for requests in self._underway.values() for request in requests]
        self._abandoned += self._posted
        self._underway.clear()
        self._posted.clear()
        self._late.clear()
        ranks = {old: self.origins.index(name) for old, name in enumerate(before) if name in self.origins}
        self.silent = renumbered(self.silent, ranks)
        return ranks

    def _shrunk(self) -> bool:
        """Meet the other survivors in a smaller world; return False if another rank died meanwhile."""
        try:
            self._enter(*survivors(self._comm, self.platform.mpi))
            self.agreed = self.greatest(self.agreed)
        except RankLost:
            return False
        return True

    def _enter(self, comm: Any, ranks: Sequence[int]) -> None:
        """Use another world from now on.

        Args:
            comm: The communicator of its ranks.
            ranks: The old number of each of its ranks.

        Raises:
            RankLost: one of them has died meanwhile.
        """
        self._comm, self._watch = comm, DeathWatch(comm, self.platform)
        self.origins = [self.origins[rank] for rank in ranks]
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.nodes = left_of(self.nodes, ranks)
        self._started(split_leaders, self.nodes, comm)
