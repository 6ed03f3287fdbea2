"""FedSAM: steps use the gradient at the worst point nearby, which leads to flat minima."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from mpifl.algorithms.fedavg import FedAvg
from mpifl.silo import Silo
from mpifl.silo.parameters import in_precision
from mpifl.silo.steps import Batch
from mpifl.wire import Update


class FedSAM(FedAvg):
    """FedSAM (Qu et al. 2022, Algorithm 1; Caldarola et al. 2022): steps use the gradient at w + rho g /
    ||g||.

    g is the gradient at w, and both gradients use the same batch. The pass at w updates running statistics.
    """

    unlike_fedavg: ClassVar[str] = "goes by gradients beside the model"
    ways: ClassVar[tuple[str, ...]] = ("fedsam",)
    not_private = "takes a second gradient of each batch, which noise does not protect; use fedavg"

    rho: Annotated[float, Field(ge=0)] = 0.05
    """The distance of the second gradient's point; 0 is FedAvg."""

    def gradients(self, steps: int) -> int:
        """Return two for each step."""
        return 2 * steps

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train from w by the gradients at the worst points nearby."""
        objective = in_precision(self.local.precision, self.objective)

        def sharpen(gradient: Tensor, at: Tensor, batch: Batch) -> None:
            length = float(torch.linalg.vector_norm(gradient, dtype=torch.float64))
            if self.rho and length:
                worst = at.add(gradient, alpha=self.rho / length)
                gradient.copy_(silo.model.gradient_at(worst, objective, batch))

        run = silo.train_locally(w, self.local, correct=sharpen)
        return silo.update(delta=run.delta, train_loss=run.loss)
