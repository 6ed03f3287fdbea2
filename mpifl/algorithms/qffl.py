"""q-FedAvg and q-FedSGD: silos with a higher loss weigh more. Accuracies get more equal, at a small cost in
their mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.fedsgd import FedSGD
from mpifl.algorithms.server import Server
from mpifl.common import InputError
from mpifl.silo import Silo
from mpifl.wire import Update

TINY = 1e-10
"""Keeps F^(q-1) finite when a silo's loss is 0."""


class QFedAvg(FedAvg):
    """q-FedAvg (Li et al. 2020, "Fair resource allocation", Algorithm 2): silos with higher loss weigh more.

    w -= sum_k F_k^q Delta_k / sum_k h_k with Delta_k = L (w - w_k), L = 1 / eta, and h_k = q F_k^(q-1)
    ||Delta_k||^2 + L F_k^q, where F_k is silo k's loss at w. The paper draws silos by p_k (`[cohort] select =
    "examples"`). Drawn silos have equal weights, whatever `[cohort] weights` says. q = 0 is FedAvg with
    uniform weights.
    """

    own_step: ClassVar[str] = "quotient is the step of its server, length and all"
    needs_mean: ClassVar[str] = "its step is divided by a sum of numbers, which no rule bounds"
    ways: ClassVar[tuple[str, ...]] = ("qffl",)
    ignores: ClassVar[frozenset[str]] = frozenset({"cohort.weights"})
    not_private = "weighs silos by their losses, and a loss is a query; use fedavg"
    not_clipped = "its step is divided by h, which is made of the whole step"
    not_augmented = "weighs silos by their losses on the examples as they are"

    q: Annotated[float, Field(ge=0)] = 1.0
    """The exponent of the loss in a silo's weight; 0 is FedAvg with equal weights."""

    def weight(self, work: str, examples: Mapping[str, int], usual: float) -> float:
        """Return 1 for each silo's training."""
        return super().weight(work, examples, 1.0)

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Move w by the quotient of the sums; the factor 1/|S| of both means cancels."""
        mean = cohort.mean(self.train, w=server.state["w"])
        self.server_optimizer.step(server.state, mean["step"] / mean.scalars.pop("h"))
        return mean.scalars

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train from w, and weight the step by the loss at w."""
        run = silo.train_locally(w, self.local)
        return self._answer(silo, w, run.delta / self.local.at_round(silo.round).lr, run.loss)

    def _answer(self, silo: Silo, w: Tensor, step: Tensor, train_loss: float) -> Update:
        """Return the update for step = -Delta_k."""
        lr = self.local.at_round(silo.round).lr
        loss = silo.loss(w) + TINY
        try:
            h = self.q * loss ** (self.q - 1) * float(step.square().sum()) + 1 / lr * loss**self.q
        except (OverflowError, ZeroDivisionError):  # Python raises these if the result is beyond float64
            h = math.inf
        if not math.isfinite(h):  # else h's mean would cover other silos than the steps' mean
            what = f"[local] lr = {lr:g}: h = {h}, beyond what q-FFL can weigh at this step and this loss"
            raise InputError(f"{what}; use another lr, or a lower q")
        return silo.update(step=step * loss**self.q, h=h, train_loss=train_loss)


class QFedSGD(QFedAvg, FedSGD):
    """q-FedSGD (Li et al. 2020, Algorithm 1): Delta_k is the gradient of all the silo's data at w."""

    ways: ClassVar[tuple[str, ...]] = QFedAvg.ways + FedSGD.ways
    ignores: ClassVar[frozenset[str]] = QFedAvg.ignores | FedSGD.ignores

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Send the gradient at w, weighted by the loss at w."""
        run = silo.gradient(w, track=True)
        return self._answer(silo, w, -run.delta, run.loss)
