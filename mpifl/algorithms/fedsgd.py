"""FedSGD: in each round one gradient of all the data."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mpifl.algorithms.fedavg import FedAvg
from mpifl.silo import Silo
from mpifl.silo.steps import LOCAL
from mpifl.wire import Update


class FedSGD(FedAvg):
    """FederatedSGD (McMahan et al. 2017, section 2):
    w -= eta * sum_k n_k/n grad F_k(w), with eta = `local.lr`."""

    unlike_fedavg: ClassVar[str] = "is one gradient of all examples"

    ways: ClassVar[tuple[str, ...]] = ("fedsgd",)
    ignores: ClassVar[frozenset[str]] = frozenset(f"local.{key}" for key in LOCAL.idle("fedsgd"))
    not_augmented = "takes the gradient of all examples as they are"
    not_private = "takes the gradient of all examples; use fedavg with [local] steps = 1"
    not_clocked = "takes one gradient of all examples, and speeds are of steps over batches; use fedavg"

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Send -eta times the gradient of all the silo's examples at w."""
        run = silo.gradient(w, track=True)
        return silo.update(delta=-self.local.at_round(silo.round).lr * run.delta, train_loss=run.loss)
