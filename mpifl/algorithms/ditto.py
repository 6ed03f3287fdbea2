"""Ditto: FedAvg, and a personal model at each silo."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from mpifl.algorithms.fedavg import FedAvg
from mpifl.silo import Silo
from mpifl.silo.steps import Proximal
from mpifl.wire import Update


class Ditto(FedAvg):
    """Ditto (Li et al. 2021, Algorithm 1): v_k -= eta (grad F_k(v_k) + lambda (v_k - w)), and FedAvg for w.

    v_k starts from w_0 when the silo trains first, in any round, and takes as many steps as w does. The
    silo's model is v_k, or w before the silo has trained.
    """

    unlike_fedavg: ClassVar[str] = ""
    trainings: ClassVar[int] = 2
    recalls: ClassVar[bool] = True
    ways: ClassVar[tuple[str, ...]] = ("ditto",)

    strength: Annotated[float, Field(ge=0, alias="lambda")] = 0.1
    """The strength of the pull of personal models towards the global model."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train the personal model near w, then train w as FedAvg does."""
        first, statistics = silo.beginning
        own = silo.train_locally(
            silo.state.get("v", first),
            self.local,
            correct=Proximal(w, self.strength),
            statistics=silo.state.get("v_statistics", statistics),
        )
        silo.keep(v=own.end, v_statistics=silo.model.statistics.read())
        return super().train(silo, w)

    def personal_model(self, silo: Silo, w: Tensor) -> Tensor:
        """Return v_k."""
        own: Tensor = silo.state.get("v", w)
        return own

    def personal_statistics(self, silo: Silo) -> Tensor | None:
        """Return v_k's running statistics."""
        return silo.state.get("v_statistics")
