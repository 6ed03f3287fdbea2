"""Measured seconds of each silo's work, and which silos should move to another rank."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from mpifl.exchange.server_side.membership import Membership
from mpifl.exchange.server_side.placement import rebalance
from mpifl.wire import Nodes, Reply

MEASURED = 3
"""How many times a silo must have worked before its mean time is trusted."""


class Workload:
    """Measures the seconds of each silo's work, and finds moves after which all ranks finish together.

    Args:
        sizes: The training examples of each silo.
        membership: Which rank hosts which silo.
        moves: Whether silos may move. They must not if a rule other than the mean gives each silo a vote.
            Otherwise a rank could get more votes by reporting short times.
    """

    def __init__(self, sizes: Sequence[int], membership: Membership, *, moves: bool = True) -> None:
        self._sizes, self._membership, self._moves = sizes, membership, moves
        self._worked: dict[int, tuple[float, int]] = {}
        self._seconds, self._examples = 0.0, 0

    def add(self, headers: Iterable[Reply], at_most: float = math.inf) -> None:
        """Add the seconds of silos without a fault.

        Args:
            headers: The replies of silos.
            at_most: The seconds of the whole request; no silo counts with more.
        """
        for header in headers:
            if header.fault is None:
                total, times = self._worked.get(header.silo, (0.0, 0))
                seconds = min(header.seconds, at_most)
                self._worked[header.silo] = total + seconds, times + 1
                if self._sizes:
                    self._seconds += seconds
                    self._examples += self._sizes[header.silo]

    def seconds_of(self, silo: int) -> float | None:
        """Return the mean seconds of a silo's work; None until it has worked `MEASURED` times."""
        total, times = self._worked.get(silo, (0.0, 0))
        return total / times if times >= MEASURED else None

    def reassignments(self, cohort: Sequence[int], nodes: Nodes) -> dict[int, int]:
        """Return {silo: rank} for silos of a round that should move to another rank of their node.

        Only silos without state move: the new rank then needs no checkpoint.
        """
        assignment: dict[int, int] = {}
        for node in range(len(nodes) if self._moves else 0):
            ranks = [rank for rank in self._membership.responsive if nodes.of[rank] == node]
            if len(ranks) > 1:
                assignment |= self._reassignments_among(ranks, cohort)
        return assignment

    def _reassignments_among(self, ranks: Sequence[int], cohort: Sequence[int]) -> dict[int, int]:
        fixed = self._membership.stateful | self._membership.pinned
        held = {rank: self._membership.placed[rank].intersection(cohort) for rank in ranks}
        costs = {silo: self._cost_of(silo) for silos in held.values() for silo in silos}
        free = {silo: cost for silo, cost in costs.items() if silo not in fixed}
        return rebalance(
            free, held, {rank: sum(costs[silo] for silo in silos & fixed) for rank, silos in held.items()}
        )

    def reassignments_with_state(self) -> dict[int, int]:
        """Return the new rank of each silo that should move with its state, by the measured seconds."""
        members = self._membership
        if not self._moves:
            return {}
        held = {rank: members.placed[rank] for rank in members.responsive}
        free = set().union(*held.values()) - members.pinned
        return rebalance({silo: seconds for silo in sorted(free) if (seconds := self.seconds_of(silo))}, held)

    def _cost_of(self, silo: int) -> float:
        """Return the measured seconds of a silo's work, or an estimate from its examples; 0 at first."""
        measured = self.seconds_of(silo)
        return self._seconds / max(self._examples, 1) * self._sizes[silo] if measured is None else measured
