"""Sums that came after their round was decided, and count in a later one: `[cohort] late = "next"`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mpifl.algorithms import Server
from mpifl.run.job.tables import CohortTable
from mpifl.transforms import Message, Transform
from mpifl.wire import Mean, Purpose

WAITS = "late "
"""Before a site's name, the entry of the server's state that holds the number of the question which the site
has missed. So a checkpoint says which late sums may still count in the rounds after it."""


@dataclass(frozen=True)
class LateSum:
    """A site's sum of an earlier round.

    Attributes:
        n: The number of its question.
        round: The round of its question.
        weight: The weight of all its updates.
        vectors: The sum of weight * vector over the silos, by the vector's name; float64, shape [n]. A vector
            that is not named is 0.
    """

    n: int
    round: int
    weight: float
    vectors: Mapping[str, Tensor]


class LateSums(Transform):
    """Adds late sums to the mean of a round, the less the older they are.

    It is the rule of FedBuff (Nguyen et al. 2022, Algorithm 1): w moves by the mean of updates, each times
    s(tau) = (1 + tau)^-a. tau says how often w has moved since the update was begun. A late sum has as
    many updates as its site has silos, with their weights. s(tau) is no power of two, so a late sum leaves
    the grid of exact sums. It is added in float64 after them, site by site in the order of names.

    Attributes:
        waiting: For each site that has missed a question its number, as the server's state says.
        came: The late sums that are here, by site; a text says why one does not count.
        missed: For each site that misses the present question its number.
    """

    def __init__(self, cohort: CohortTable) -> None:
        self._a, self._most = cohort.late_a, cohort.late_rounds
        self._note: Callable[..., None] = lambda text, **how: None
        self._figures: dict[str, dict[str, float]] = {}
        self.waiting: Mapping[str, int] = {}
        self.came: Mapping[str, LateSum | str] = {}
        self.missed: Mapping[str, int] = {}

    def listen(self, note: Callable[..., None]) -> None:
        """Set the function that notes something for the user."""
        self._note = note

    def figures(self) -> dict[str, dict[str, float]]:
        """Return, by site, which late sums have counted since the last call, and how much."""
        found, self._figures = self._figures, {}
        return found

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Read in the server's state which answers may still count."""
        names = [name for name in server.state if name.startswith(WAITS)]
        self.waiting = {name.removeprefix(WAITS): int(server.state[name]) for name in names}
        return message

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Add the late sums that are here, and note in the server's state which sites are late now."""
        if purpose != "training":
            return mean
        counted = []
        for name, late in sorted(self.came.items()):
            del server.state[WAITS + name]
            if isinstance(late, str):
                self._note(f"the late sum of {name} does not count: {late}")
            elif (age := server.round - late.round) > self._most:
                what = f"of round {late.round + 1} does not count: it came {age} rounds late"
                self._note(f"the sum of {name} {what}, and [cohort] late_rounds = {self._most}")
            else:
                share = float((1 + age) ** -self._a)
                counted.append((share, late))
                told = {"late_letter": late.n, "late_round": late.round + 1, "late_weight": share}
                self._figures[name] = told
        for name, n in self.missed.items():
            server.state[WAITS + name] = n
        self.came, self.missed = {}, {}
        return _with(mean, counted) if counted else mean


def _with(mean: Mean, counted: list[tuple[float, LateSum]]) -> Mean:
    """Return a mean over its own updates and those of late sums, each of these times its share."""
    weight = mean.weight + sum(late.weight for _, late in counted)
    vectors: dict[str, Any] = {}
    for name, own in mean.vectors.items():
        total = own.double() * mean.weight
        for share, late in counted:
            if name in late.vectors:
                total += late.vectors[name].to(total.device) * share
        vectors[name] = (total / weight).to(own.dtype)
    return dataclasses.replace(mean, vectors=vectors, weight=weight)
