"""Federated averaging, on which the other algorithms build."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mpifl.algorithms.algorithm import Algorithm
from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.server import Server
from mpifl.silo import Silo
from mpifl.wire import Update


class FedAvg(Algorithm):
    """FederatedAveraging (McMahan et al. 2017, Algorithm 1): silos train from w, and w moves along the mean.

    With a server optimizer it is FedOpt (Reddi et al. 2021, Algorithm 1): FedAvgM, FedAdagrad, FedAdam,
    FedYogi.
    """

    unlike_fedavg: ClassVar[str] = ""

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Move w along the weighted mean of the silos' deltas."""
        mean = cohort.mean(self.train, w=server.state["w"])
        self.server_optimizer.step(server.state, mean["delta"])
        return mean.scalars

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train from w by the settings of `[local]`."""
        run = silo.train_locally(w, self.local)
        return silo.update(delta=run.delta, train_loss=run.loss)
