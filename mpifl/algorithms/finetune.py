"""FedAvg with fine-tuning: each silo trains the global model further before it uses it."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from mpifl.algorithms.fedavg import FedAvg
from mpifl.silo import Silo
from mpifl.silo.steps import LocalTraining, refuse_idle


class FineTune(FedAvg):
    """FedAvg and fine-tuning (Ogier du Terrail et al. 2022, FLamby): a silo's model is w after fine-tuning.

    The global model is FedAvg's. A silo's own model is w after `tune_epochs` more passes over its examples,
    with a new optimizer of `[local]`. It is made for each score and at the end, and not kept.
    """

    not_private = "trains again for each score, which no budget counts; use ditto"

    tune_epochs: PositiveInt = 1
    """Passes over a silo's examples that turn the global model into its own model."""
    tune_steps: PositiveInt | None = None
    """Steps instead of these passes."""
    tune_lr: PositiveFloat | None = None
    """The learning rate of fine-tuning; by default the round's."""

    @model_validator(mode="after")
    def _steps_or_epochs(self) -> FineTune:
        if self.tune_steps is not None:
            why = f"tune_steps = {self.tune_steps} takes the place of epochs; leave one of them out"
            refuse_idle(self, ["tune_epochs"], why)
        return self

    def personal_model(self, silo: Silo, w: Tensor) -> Tensor:
        """Return w after fine-tuning at the silo."""
        own = silo.train_locally(w, self._tuning).end.clone()
        silo.learned_statistics = None  # the server must not get statistics of this training
        return own

    @property
    def _tuning(self) -> LocalTraining:
        epochs = None if self.tune_steps else self.tune_epochs
        changed: dict[str, Any] = {"deadline": None, "keep_optimizer_state": False, "schedule_rounds": 1}
        if self.tune_lr is not None:
            changed |= {"lr": self.tune_lr, "lr_decay": 1.0}
        return self.local.lasting(epochs=epochs, steps=self.tune_steps).model_copy(update=changed)

    def personal_statistics(self, silo: Silo) -> Tensor | None:
        """Return the running statistics after fine-tuning."""
        return silo.model.statistics.read()
