"""The server waits for a few updates, from whoever is done, and silos continue meanwhile."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt
from torch import Tensor

from mpifl.algorithms.asynchronous import Continuing
from mpifl.silo.steps import LocalRun


class FedBuff(Continuing):
    """FedBuff (Nguyen et al. 2022, Algorithm 1): w moves by the mean of `buffer` updates, each times s(tau).

    tau is how often w has moved since the update was begun, and s(tau) = (1 + tau)^-a, the paper's 1 / sqrt(1
    + tau). The paper's updates count alike, `[cohort] weights = "uniform"`, and its eta_g is
    `server_optimizer.lr`.
    """

    buffer: PositiveInt = 10
    """K, how many updates the server waits for."""
    a: Annotated[float, Field(ge=0)] = 0.5
    """How fast an update's weight falls with its staleness; 0 leaves it."""

    @property
    def waits(self) -> int:
        """Return K."""
        return self.buffer

    def kept(self, run: LocalRun) -> Tensor:
        """Return how far the silo went."""
        return run.delta

    def weighed(self, kept: Tensor, w: Tensor, age: int) -> Tensor:
        """Return s(tau) delta."""
        return kept * float((1 + age) ** -self.a)
