"""Silos that take different numbers of steps pull with the same force."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.silo import Silo
from mpifl.wire import Update


class FedNova(FedAvg):
    """FedNova (Wang et al. 2020, equation 6): w += tau_eff * sum_k p_k delta_k / ||a_k||_1.

    a_k says how often each of silo k's gradients is in its delta. For plain SGD that is once each, so that
    ||a_k||_1 is its number of steps tau_k; with momentum a later gradient less often than an earlier one.
    tau_eff = sum_k p_k ||a_k||_1, for plain SGD the paper's sum_k p_k tau_k; with equal work this is exactly
    FedAvg.
    """

    needs_mean: ClassVar[str] = "its step is multiplied by a mean of numbers, which no rule bounds"
    ways: ClassVar[tuple[str, ...]] = ("fednova",)

    def why_not_noised(self) -> str:
        """Say that a number of the silos is a factor of its step."""
        return "its step is multiplied by the mean of the silos' steps, which no noise protects"

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Move w along the mean of the normalised deltas, as far as the silos went on average."""
        mean = cohort.mean(self.train, w=server.state["w"])
        self.server_optimizer.step(server.state, mean["direction"] * mean.scalars["tau_eff"])
        return mean.scalars

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train from w and divide by the number of gradients that the delta holds."""
        run = silo.train_locally(w, self.local)
        a = gradients_held(run.steps, self.local.momentum)
        return silo.update(direction=run.delta / a, tau_eff=a, train_loss=run.loss)


def gradients_held(steps: int, momentum: float) -> float:
    """Return how many gradients SGD's delta holds: ||a||_1 = sum_i (1 - rho^i) / (1 - rho), i = 1..tau.

    Wang et al. 2020, section 4.2. Without momentum these are the steps.
    """
    rho = momentum
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
