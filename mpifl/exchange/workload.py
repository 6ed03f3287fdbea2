"""How long the silos take, as measured, and who had better take which."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from mpifl.exchange.placement import rebalance
from mpifl.wire import Header

MEASURED = 3
"""Times that a silo must have worked before its time is trusted."""


class Workload:
    """The seconds that each silo's work took.

    Attributes:
        bound: Silos that keep something for later rounds, or whose shard no other rank could open.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.bound: set[int] = set()
        self._sizes = sizes
        self._worked: dict[int, tuple[float, int]] = {}
        self._seconds, self._examples = 0.0, 0

    def add(self, headers: Iterable[Header], at_most: float = math.inf) -> None:
        """Remember how long the silos took that answered without fault, none longer than the request `at_most` did."""
        for header in headers:
            if header.fault is None:
                total, times = self._worked.get(header.silo, (0.0, 0))
                seconds = min(header.seconds, at_most)
                self._worked[header.silo] = total + seconds, times + 1
                if self._sizes:
                    self._seconds += seconds
                    self._examples += self._sizes[header.silo]

    def seconds_of(self, silo: int) -> float | None:
        """Return how long a silo's work took on average, None while it has not been asked often enough."""
        total, times = self._worked.get(silo, (0.0, 0))
        return total / times if times >= MEASURED else None

    def deal(self, held: Mapping[int, set[int]]) -> dict[int, int]:
        """Say which silos of a round go to another rank, so that all are done at the same time.

        Args:
            held: The silos of the round that each of the ranks hosts.

        Returns:
            The new rank of each silo that moves: of those that keep nothing.
        """
        if len(held) < 2:
            return {}
        costs = {silo: self._cost_of(silo) for silos in held.values() for silo in silos}
        free = {silo: cost for silo, cost in costs.items() if silo not in self.bound}
        fixed = {rank: sum(costs[silo] for silo in silos & self.bound) for rank, silos in held.items()}
        return rebalance(free, held, fixed)

    def _cost_of(self, silo: int) -> float:
        """Return the seconds that a silo's work may take, as measured or as its examples take elsewhere; 0 at first."""
        measured = self.seconds_of(silo)
        return self._seconds / max(self._examples, 1) * self._sizes[silo] if measured is None else measured
