"""Which rank hosts which silo, as the server knows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mpifl.wire import Request


class Membership:
    """Who hosts what.

    Attributes:
        placed: The silos of each worker.
        population: How many silos there are.
        absent: Silos that no living rank can host.
    """

    def __init__(self, placed: Mapping[int, Sequence[int]]) -> None:
        self.placed = {rank: set(silos) for rank, silos in placed.items()}
        self.population = sum(len(silos) for silos in placed.values())
        self.absent: set[int] = set()

    def answerable(self, request: Request, rank: int) -> set[int]:
        """Return the silos of a request that a rank is to answer for: its own, and those that are to move there."""
        own = self.placed.get(rank, set()).difference(request.homes).intersection(request.cohort)
        return own | {silo for silo, home in request.homes.items() if home == rank}

    def move(self, homes: Mapping[int, int], accepted: Collection[int]) -> None:
        """Remember the new ranks of silos whose move was accepted."""
        for silo in homes.keys() & set(accepted):
            for silos in self.placed.values():
                silos.discard(silo)
            self.placed[homes[silo]].add(silo)
