"""FedNova: deltas are normalised, so that silos with different numbers of steps count equally."""

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

    a_k holds how often each of silo k's gradients counts in its delta. For plain SGD each counts once, so
    ||a_k||_1 is the number of steps tau_k. With momentum a later gradient counts less often than an earlier
    one. tau_eff = sum_k p_k ||a_k||_1, for plain SGD the paper's sum_k p_k tau_k. With equal work this is
    exactly FedAvg.
    """

    needs_mean: ClassVar[str] = "its step is multiplied by a mean of numbers, which no rule bounds"
    ways: ClassVar[tuple[str, ...]] = ("fednova",)
    not_noised = "its step is multiplied by the mean of the silos' steps, which noise does not protect"

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Move w by tau_eff times the mean of the normalised deltas."""
        mean = cohort.mean(self.train, w=server.state["w"])
        self.server_optimizer.step(server.state, mean["direction"] * mean.scalars["tau_eff"])
        return mean.scalars

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train from w, and divide the delta by the number of gradients in it."""
        run = silo.train_locally(w, self.local)
        a = gradients_held(run.steps, self.local.momentum)
        return silo.update(direction=run.delta / a, tau_eff=a, train_loss=run.loss)


def gradients_held(steps: int, momentum: float) -> float:
    """Return the number of gradients in SGD's delta: ||a||_1 = sum_i (1 - rho^i) / (1 - rho), i = 1..tau.

    Wang et al. 2020, section 4.2. Without momentum it is the number of steps.
    """
    rho = momentum
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
