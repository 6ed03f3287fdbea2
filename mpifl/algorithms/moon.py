"""MOON: learn features close to the global model's, and far from those of the silo's last model."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from mpifl.algorithms.fedavg import FedAvg
from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.silo import Silo
from mpifl.wire import Update


class Moon(FedAvg):
    """MOON (Li, He & Song 2021, Algorithm 1 and equation 3): features stay near those of the global model.

    The objective is the task's loss (in the paper cross entropy) plus mu times -log(e^(s/t) / (e^(s/t) +
    e^(p/t))), where t is the temperature. s is the cosine between an example's features and its features in
    the global model w. p is the cosine with its features in the silo's own model of its last round; in its
    first round this model is w_0. The model must have `features(x)` and `head(z)`. Both frozen models see
    each example once a round, not once a step.
    """

    unlike_fedavg: ClassVar[str] = "compares with the silo's last model"
    recalls: ClassVar[bool] = True
    not_augmented = "compares features with those that other models see in the examples as they are"

    mu: Annotated[float, Field(ge=0)] = 1.0
    """The weight of the contrastive term; 0 is FedAvg."""
    temperature: Annotated[float, Field(gt=0)] = 0.5
    """The temperature of the contrastive term."""

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """Check that the model has `features` and `head`, and that examples have single targets.

        Raises:
            InputError: the model or the federation does not fit.
        """
        if spec.has_ragged_targets:
            why = "examples have unequal numbers of targets, and so of answers, which it compares"
            raise InputError(f"[algorithm] name = 'moon': {why}; use another algorithm")
        if not (callable(getattr(module, "features", None)) and callable(getattr(module, "head", None))):
            raise InputError(
                "[algorithm] name = 'moon': needs a model with features(x) and head(z), whose forward is "
                "head(features(x)); the built-in models have them"
            )

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train with the contrastive term, and keep the result for the next round."""
        first, statistics = silo.beginning
        previous = silo.state.get("previous", first)
        statistics = silo.state.get("previous_statistics", statistics)
        away = F.normalize(silo.features(previous, statistics), dim=1)
        towards = F.normalize(silo.features(w), dim=1)
        run = silo.train_locally(w, self.local, objective=self.contrastive, beside=[away - towards])
        silo.keep(previous=run.end, previous_statistics=silo.model.statistics.read())
        return silo.update(delta=run.delta, train_loss=run.loss)

    def contrastive(self, module: Any, x: Tensor, y: Tensor, apart: Tensor) -> Tensor:
        """Return the task's loss + mu * contrastive loss, the mean over a batch.

        Both cosines are linear in the frozen models' unit features. So p - s needs only their difference
        `apart`, shape [n, d, ...]. The loss -log(e^(s/t) / (e^(s/t) + e^(p/t))) is log(1 + e^((p - s)/t)).
        """
        z = module.features(x)
        difference = torch.linalg.vecdot(F.normalize(z, dim=1), apart, dim=1) / self.temperature
        return self.task.mean_loss(module.head(z), y) + self.mu * F.softplus(difference).mean()
