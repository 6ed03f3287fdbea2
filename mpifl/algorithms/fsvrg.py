"""Variance-reduced steps towards the optimum of all data, not of one silo's."""

from __future__ import annotations

from typing import ClassVar

from pydantic import model_validator
from torch import Tensor

from mpifl.algorithms.base import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.flat import in_precision
from mpifl.local import Batch
from mpifl.messages import Update
from mpifl.server import Server
from mpifl.silo import Silo


class FSVRG(FedAvg):
    """Federated SVRG (Konecny et al. 2016, "Federated optimization", Algorithm 4 with S_k = A = I).

    After the full gradient at w_t, silo k goes through a permutation of its data with steps w -= h_k (grad f_i(w)
    - grad f_i(w_t) + grad f(w_t)), h_k = h / n_k, and the deltas weigh n_k / n. The paper is epochs = 1 and
    batch_size = 1; h is `local.lr`. The full gradient is the cohort's: of all silos at `[cohort] fraction = 1`.
    """

    absolute: ClassVar[frozenset[str]] = frozenset({"gradient"})

    @model_validator(mode="after")
    def _plain_steps(self) -> FSVRG:
        if not self.local.plain:
            raise ValueError("fsvrg's step is its own; take [local] optimizer = 'sgd', momentum = 0, weight_decay = 0")
        return self

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Ask for the full gradient, then for variance-reduced training along it."""
        full = cohort.mean(self.full_gradient, w=server.state["w"])
        mean = cohort.mean(self.train_reduced, w=server.state["w"], full=full["gradient"])
        self.server_optimizer.step(server.state, mean["delta"])
        return mean.scalars

    def full_gradient(self, silo: Silo, w: Tensor) -> Update:
        """Take the mean gradient of the silo's examples at w."""
        return silo.update(gradient=silo.gradient(w).delta)

    def train_reduced(self, silo: Silo, w: Tensor, full: Tensor) -> Update:
        """Take steps whose gradients are the full gradient on average, with a variance that falls as w settles."""
        objective = in_precision(self.local.precision, self.objective)  # as in the step, so that both cancel at w

        def reduce(gradient: Tensor, at: Tensor, batch: Batch) -> None:
            gradient.sub_(silo.model.gradient_at(w, objective, batch)).add_(full)

        settings = self.local.model_copy(update={"lr": self.local.lr / silo.examples})
        run = silo.train_locally(w, settings, correct=reduce)
        return silo.update(delta=run.delta, train_loss=run.loss)
