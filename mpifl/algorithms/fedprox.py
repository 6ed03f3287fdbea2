"""A proximal term keeps silos that do much or little work near the model they started from."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt
from torch import Tensor

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.silo import Silo
from mpifl.silo.steps import Proximal
from mpifl.wire import Update

NonNegative = Annotated[float, Field(ge=0)]


class FedProx(FedAvg):
    """FedProx (Li et al. 2020, Algorithm 2): each silo minimises h_k(w; w_t) = F_k(w) + (mu/2) ||w - w_t||^2
    inexactly.

    How much work a silo does is `[local]`'s: `stragglers` do less, and their partial solutions count. With
    `adaptive`, mu rises by `mu_step` when the cohort's training loss rose and falls by it after `patience`
    falls in a row (section 5.3.2). With `measure_gamma`, every silo reports how inexact it was, gamma =
    ||grad h_k(w_k)|| / ||grad h_k(w_t)|| (Definition 2), at the cost of two more full gradients. `gamma` is
    the silos' mean in a round, and `gamma_silos` has each one's.
    """

    unlike_fedavg: ClassVar[str] = "is pulled towards the model"

    mu: NonNegative = 0.01
    """The strength of the pull towards the global model; 0 is FedAvg."""
    adaptive: bool = False
    """Adapt mu to the training loss."""
    mu_step: NonNegative = 0.1
    """By how much adaptive moves mu at a time."""
    patience: PositiveInt = 5
    """After how many falls of the loss in a row adaptive lowers mu."""
    measure_gamma: bool = False
    """Report how inexact each silo was, at the cost of two more full gradients."""

    def why_not_private(self) -> str:
        """Say that it goes by losses, or by gradients of all examples, where it does."""
        if self.adaptive:
            return "adapts mu to the training loss, and a loss is a query; leave adaptive out"
        return "measures gamma by gradients of all examples; leave measure_gamma out" * self.measure_gamma

    def why_not_noised(self) -> str:
        """Say that it goes by losses, or tells of gamma, where it does."""
        if self.adaptive:
            return "it adapts mu to the training loss, and a loss is a query; leave adaptive out"
        return "it reports gamma, and gamma is a query; leave measure_gamma out" * self.measure_gamma

    def begin(self, server: Server) -> None:
        """Start from mu, whether or not it will be adapted."""
        super().begin(server)
        server.state["mu"] = self.mu

    def why_not_augmented(self) -> str:
        """Say that gamma is of gradients of everything."""
        return "measures gamma on the examples as they are" if self.measure_gamma else ""

    def round(self, server: Server, cohort: Cohort) -> dict[str, Any]:
        """Move w along the weighted mean of the silos' deltas, and adapt mu."""
        state = server.state
        mu = state["mu"]
        mean = cohort.mean(self.train_near, w=state["w"], mu=mu)
        self.server_optimizer.step(state, mean["delta"])
        if self.adaptive and "train_loss" in mean.scalars:
            state |= self._adapted(state, mean.scalars["train_loss"])
        found = {"gamma_silos": mean.of_silos("gamma")} if self.measure_gamma else {}
        return {**mean.scalars, "mu": mu, **found}

    def train_near(self, silo: Silo, w: Tensor, mu: float) -> Update:
        """Train on the proximal objective."""
        run = silo.train_locally(w, self.local, correct=Proximal(w, mu))
        update = silo.update(delta=run.delta, train_loss=run.loss)
        if self.measure_gamma:
            update.scalars |= self._inexactness(silo, w, run.end.clone(), mu)
        return update

    def _inexactness(self, silo: Silo, w: Tensor, end: Tensor, mu: float) -> dict[str, float]:
        left = silo.gradient(end).delta.add_(end - w, alpha=mu)
        first = silo.gradient(w).delta.norm()
        # a silo that starts at its optimum has none
        return {"gamma": float(left.norm() / first)} if first else {}

    def _adapted(self, state: dict[str, Any], loss: float) -> dict[str, float | int]:
        before = state.get("loss", loss)  # the first round has none to have risen or fallen from
        falls = state.get("falls", 0) + 1 if loss < before else 0
        if loss > before:
            return {"mu": state["mu"] + self.mu_step, "loss": loss, "falls": 0}
        if falls < self.patience:
            return {"mu": state["mu"], "loss": loss, "falls": falls}
        return {"mu": max(state["mu"] - self.mu_step, 0.0), "loss": loss, "falls": 0}
