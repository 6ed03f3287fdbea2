"""One gradient of all the data a round."""

from __future__ import annotations

from torch import Tensor

from mpifl.algorithms.fedavg import FedAvg
from mpifl.messages import Update
from mpifl.silo import Silo


class FedSGD(FedAvg):
    """FederatedSGD (McMahan et al. 2017, section 2): w -= eta * sum_k n_k/n grad F_k(w), with eta = `local.lr`."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Take the gradient of all the silo's examples at w."""
        run = silo.gradient(w, track=True)
        return silo.update(delta=-self.local.at_round(silo.round).lr * run.delta, train_loss=run.loss)
