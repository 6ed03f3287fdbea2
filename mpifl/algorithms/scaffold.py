"""Control variates correct what drives the silos apart."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from mpifl.algorithms.base import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.fednova import gradients_held
from mpifl.local import Constant, LocalRun
from mpifl.messages import Update
from mpifl.server import Server
from mpifl.silo import Silo


class Scaffold(FedAvg):
    """SCAFFOLD (Karimireddy et al. 2020, Algorithm 1).

    The new control c_k+ is, by option I, the gradient of all the silo's data at w; by option II, c_k - c + (w - y_k) /
    (K eta), the mean of the gradients that training went along. Option I corrects every step by full gradients at
    w, which is right only while the steps stay near it: keep eta * K small.

    The controls weigh as silos do in the objective, c = sum_k p_k c_k over all silos: p_k = n_k / n, or the paper's 1/N
    where `[cohort]` draws and counts all silos alike. No silo moves where each c_k is its gradient and c = 0, that is
    at the optimum of sum_k p_k F_k; so c decides which optimum it is, and what deltas weigh only how it is reached.
    Silos that are drawn by n_k and counted alike weigh n_k in c as well: E[delta] weighs p_k then. c is a sum over all
    silos, not an estimate from those drawn, so that it takes each shift by p_k however often the silo is drawn.

    The paper's steps are plain SGD. With momentum option II divides by eta ||a||_1 (Wang et al. 2020) in place of
    K eta: the mean of the gradients, each as often as the steps carry it on; as before, no silo moves at the optimum.
    """

    accumulated: ClassVar[frozenset[str]] = frozenset({"shift"})
    option: Literal["I", "II"] = "II"

    @model_validator(mode="after")
    def _known_steps(self) -> Scaffold:
        if self.local.optimizer != "sgd" or self.local.nesterov:
            raise ValueError(
                "scaffold tells a silo's mean gradient from how far its steps went, and corrects each step's gradient "
                "by it: it knows how for sgd with or without momentum only; take [local] optimizer = 'sgd' and "
                "nesterov = false"
            )
        return self

    def begin(self, server: Server) -> None:
        """Start with controls of zero."""
        super().begin(server)
        server.state["c"] = torch.zeros_like(server.state["w"])

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Move w by the mean delta, and c by n_S / n (|S| / N) times the mean of the controls' shifts."""
        state = server.state
        mean = cohort.mean(self.train_corrected, w=state["w"], c=state["c"])
        self.server_optimizer.step(state, mean["delta"])
        state["c"] += mean.weight / cohort.weight * mean["shift"]
        state["weight"] = cohort.weight
        return mean.scalars

    def train_corrected(self, silo: Silo, w: Tensor, c: Tensor) -> Update:
        """Train with every gradient corrected by c - c_k, and renew c_k."""
        own = silo.state.get("c", torch.zeros_like(c))
        run = silo.train_locally(w, self.local, correct=Constant(c - own))
        shift = self._control(silo, w, run, correction=c - own) - own
        silo.keep(c=own + shift)
        return silo.update(delta=run.delta, shift=silo.importance * shift, train_loss=run.loss)

    def aligned(self, server: Server, everyone: Cohort) -> bool:
        """Return whether c weighs the c_k as the objective does; before it was noted, it weighed all alike."""
        return bool(server.state.get("weight", everyone.population) == everyone.weight)

    def realign(self, server: Server, everyone: Cohort) -> None:
        """Make c the sum of p_k c_k that there are: where it were any other, training would end beside the optimum."""
        mean = everyone.mean(self.tell_control)
        server.state["c"].copy_(mean.weight / everyone.weight * mean["c"])
        server.state["weight"] = everyone.weight

    def tell_control(self, silo: Silo) -> Update:
        """Answer c_k, as far as the server was told of it; in float64, which travels as it is."""
        own = silo.state.get("c", torch.zeros_like(silo.model.shared))
        return silo.update(c=silo.importance * own.double() - silo.unsent("shift"))

    def _control(self, silo: Silo, w: Tensor, run: LocalRun, correction: Tensor) -> Tensor:
        if self.option == "I":
            return silo.gradient(w).delta
        held = gradients_held(run.steps, self.local.momentum)
        return -run.delta / (held * self.local.at_round(silo.round).lr) - correction
