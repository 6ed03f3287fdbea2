"""APFL: each silo mixes the global model with a model of its own."""

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


class APFL(FedAvg):
    """APFL (Deng et al. 2020, Algorithm 1): silo k's personal model is alpha v_k + (1 - alpha) w.

    Each batch moves w_k as FedAvg does, and v_k by the gradient of the mixture: v_k -= eta alpha grad
    F_k(alpha v_k + (1 - alpha) w_k). v_k starts from the w of the silo's first round. With `adaptive`, each
    step also moves alpha by gradient descent, between 0 and 1. The authors' code does so once a round.
    """

    unlike_fedavg: ClassVar[str] = ""
    ways: ClassVar[tuple[str, ...]] = ("paired",)
    not_private = "takes a second gradient of each batch, which noise does not protect; use ditto"

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The share of v_k in a silo's mixture; 0 is FedAvg, 1 is training alone."""
    adaptive: bool = False
    """Let each silo learn its alpha."""

    def gradients(self, steps: int) -> int:
        """Return two for each step."""
        return 2 * steps

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train w_k as FedAvg does, and v_k along the same batches."""
        objective = in_precision(self.local.precision, self.objective)
        lr = self.local.at_round(silo.round).lr
        v, alpha = silo.state.get("v", w).clone(), float(silo.state.get("alpha", self.alpha))

        def beside(gradient: Tensor, at: Tensor, batch: Batch) -> None:
            nonlocal alpha
            found = silo.model.gradient_at(torch.lerp(at, v, alpha), objective, batch)
            slope = float(found.double().dot((v - at).double())) if self.adaptive else 0.0
            v.sub_(found, alpha=lr * alpha)
            alpha = min(max(alpha - lr * slope, 0.0), 1.0)

        run = silo.train_locally(w, self.local, correct=beside)
        silo.keep(v=v, alpha=alpha)
        return silo.update(delta=run.delta, train_loss=run.loss)

    def personal_model(self, silo: Silo, w: Tensor) -> Tensor:
        """Return the mixture, or w for a silo that has not trained yet."""
        return torch.lerp(w, silo.state["v"], float(silo.state["alpha"])) if "v" in silo.state else w
