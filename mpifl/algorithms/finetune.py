"""FedAvg, whose model each silo trains on before it uses it."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from mpifl.algorithms.fedavg import FedAvg
from mpifl.silo import Silo
from mpifl.silo.steps import LocalTraining


class FineTune(FedAvg):
    """FedAvg and fine-tuning (Ogier du Terrail et al. 2022, FLamby): a silo uses what it makes of w.

    The global model is FedAvg's. A silo's own model is w after `tune_epochs` more passes over its examples by
    the optimizer of `[local]`, begun anew. It is made where the silo is scored and at the end, and not kept.
    """

    tune_epochs: PositiveInt = 1
    """Passes over a silo's examples that make its own model of the global one."""
    tune_steps: PositiveInt | None = None
    """Steps in place of these passes."""
    tune_lr: PositiveFloat | None = None
    """The learning rate of fine-tuning; by default that of the round."""

    def why_not_private(self) -> str:
        """Say that no budget counts fine-tuning."""
        return "trains anew for each score, which no budget counts; take ditto"

    def personal_model(self, silo: Silo, w: Tensor) -> Tensor:
        """Return what a silo makes of w."""
        own = silo.train_locally(w, self._tuning).end.clone()
        silo.learned_statistics = None  # the server is to hear nothing of this training
        return own

    @property
    def _tuning(self) -> LocalTraining:
        epochs = None if self.tune_steps else self.tune_epochs
        changed: dict[str, Any] = {"deadline": None, "keep_optimizer_state": False, "schedule_rounds": 1}
        if self.tune_lr is not None:
            changed |= {"lr": self.tune_lr, "lr_decay": 1.0}
        return self.local.lasting(epochs=epochs, steps=self.tune_steps).model_copy(update=changed)

    def personal_statistics(self, silo: Silo) -> Tensor | None:
        """Return the running statistics that fine-tuning has left."""
        return silo.model.statistics.read()
