"""pFedMe: personal models by Moreau envelopes."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from mpifl.algorithms.fedavg import FedAvg
from mpifl.silo import Silo
from mpifl.silo.parameters import in_precision
from mpifl.silo.steps import Batch
from mpifl.wire import Update


class PFedMe(FedAvg):
    """pFedMe (T. Dinh et al. 2020, Algorithm 1): w_k -= eta lambda (w_k - theta_k), where theta_k is the
    personal model.

    theta_k approximately minimises F_k(theta; batch) + (lambda / 2) ||theta - w_k||^2, by `inner_steps`
    gradient steps from w_k. The paper does not say where they start. eta is `local.lr`, and the paper's beta
    is `server_optimizer.lr`. The silo's model is its last theta_k.
    """

    unlike_fedavg: ClassVar[str] = "goes towards models of the silos' own"
    ways: ClassVar[tuple[str, ...]] = ("paired",)
    not_private = "takes several gradients of each batch, which noise does not protect; use ditto"

    strength: Annotated[PositiveFloat, Field(alias="lambda")] = 15.0
    """The strength of the pull of personal models towards the global model."""
    inner_steps: PositiveInt = 5
    """Gradient steps of the personal model on each batch."""
    inner_lr: PositiveFloat = 0.01
    """The learning rate of these steps."""

    def gradients(self, steps: int) -> int:
        """Return `inner_steps` for each step."""
        return self.inner_steps * steps

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train w_k towards the personal model of each batch."""
        objective = in_precision(self.local.precision, self.objective)
        theta = w

        def towards(gradient: Tensor, at: Tensor, batch: Batch) -> None:
            nonlocal theta
            theta = at.add(gradient, alpha=-self.inner_lr)
            for _ in range(self.inner_steps - 1):
                found = silo.model.gradient_at(theta, objective, batch)
                theta.sub_(found.add_(theta - at, alpha=self.strength), alpha=self.inner_lr)
            gradient.copy_(at).sub_(theta).mul_(self.strength)

        run = silo.train_locally(w, self.local, correct=towards)
        silo.keep(theta=theta)
        return silo.update(delta=run.delta, train_loss=run.loss)

    def personal_model(self, silo: Silo, w: Tensor) -> Tensor:
        """Return theta_k."""
        own: Tensor = silo.state.get("theta", w)
        return own
