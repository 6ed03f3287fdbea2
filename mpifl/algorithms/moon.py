"""Learn features like the global model's, and unlike those of the silo's own last model."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from mpifl.algorithms.fedavg import FedAvg
from mpifl.errors import InputError
from mpifl.messages import Update
from mpifl.shards import FederationSpec
from mpifl.silo import Silo


class Moon(FedAvg):
    """MOON (Li, He & Song 2021, Algorithm 1 and equation 3).

    To the cross entropy comes mu times -log(e^(s/t) / (e^(s/t) + e^(p/t))), where s and p are the cosines of an
    example's features with those in the global model w and in the silo's own model of its last round, and t is the
    temperature.
    The model exposes `features(x)` and `head(z)`. Both frozen models see each example once a round, not once a step.
    """

    mu: Annotated[float, Field(ge=0)] = 1.0
    temperature: Annotated[float, Field(gt=0)] = 0.5

    def check(self, module: nn.Module, spec: FederationSpec) -> None:
        """See that the model exposes its features.

        Raises:
            InputError: it does not.
        """
        if not (callable(getattr(module, "features", None)) and callable(getattr(module, "head", None))):
            raise InputError(
                "[algorithm] name = 'moon': needs a model with features(x) and head(z), whose forward is "
                "head(features(x)); the built-in models have them"
            )

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train with the contrastive term, and keep the result for the next round."""
        previous, statistics = silo.state.get("previous", w), silo.state.get("previous_statistics")
        towards, away = silo.features(w), silo.features(previous, statistics)
        run = silo.train_locally(w, self.local, objective=self.contrastive, beside=[towards, away])
        silo.keep(previous=run.end, previous_statistics=silo.model.statistics.read())
        return silo.update(delta=run.delta, train_loss=run.loss)

    def contrastive(self, module: Any, x: Tensor, y: Tensor, towards: Tensor, away: Tensor) -> Tensor:
        """Return the mean of cross entropy + mu * contrastive loss over a batch."""
        z = module.features(x)
        similar = F.cosine_similarity(z, towards) / self.temperature
        dissimilar = F.cosine_similarity(z, away) / self.temperature
        contrast = F.softplus(dissimilar - similar).mean()  # -log(e^s / (e^s + e^p)) = log(1 + e^(p - s))
        return F.cross_entropy(module.head(z), y) + self.mu * contrast
