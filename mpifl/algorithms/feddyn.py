"""FedDyn: terms added to each silo's objective make all silos agree on one optimum."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import PositiveFloat
from torch import Tensor

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.control_variates import Controlled
from mpifl.algorithms.server import Server
from mpifl.silo import Silo
from mpifl.silo.steps import Proximal
from mpifl.wire import Update


class FedDyn(Controlled):
    """FedDyn (Acar et al. 2021, Algorithm 1): silo k trains on F_k(v) - <g_k, v> + (alpha/2) ||v - w||^2.

    Then g_k -= alpha delta_k, h adds up the shifts of the g_k, and w = (mean of the v_k) - h / alpha. The
    paper gives all silos equal weights, [cohort] weights = "uniform". With weights by examples, h = sum_k p_k
    g_k and the v_k weigh n_k.
    """

    own_step: ClassVar[str] = "server has a step of its own"
    needs_mean: ClassVar[str] = "what the server adds up must stay the mean of what the silos do"
    accumulated: ClassVar[frozenset[str]] = frozenset({"delta", "shift"})
    at_server: ClassVar[str] = "h"
    at_silo: ClassVar[str] = "g"

    alpha: PositiveFloat = 0.1
    """The strength of the pull towards w; with small values silos move far from it."""

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Move h by the shifts of the g_k, then set w to the mean of the silos' models minus h / alpha."""
        mean = cohort.mean(self.train, w=server.state["w"])
        delta = mean["delta"]
        self.shift(server, cohort, mean, -self.alpha * mean.vectors.get("shift", delta))
        server.state["w"] += delta - server.state["h"] / self.alpha
        return mean.scalars

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train on the changed objective, and renew g_k. Its two added terms equal one pull towards w + g_k /
        alpha."""
        own = self.own(silo)
        run = silo.train_locally(w, self.local, correct=Proximal(w + own / self.alpha, self.alpha))
        silo.keep(g=own - self.alpha * run.delta)
        more: dict[str, Any] = {"shift": silo.importance * run.delta} if silo.reweighed else {}
        return silo.update(delta=run.delta, **more, train_loss=run.loss)

    def untold(self, silo: Silo) -> Tensor | float:
        """Return the part of the shifts of g_k that compression has left out so far; it compresses
        delta_k."""
        return -self.alpha * silo.residual("shift" if silo.reweighed else "delta")
