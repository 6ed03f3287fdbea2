"""FedExP: the server takes larger steps when the silos' deltas disagree."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.silo import Silo
from mpifl.wire import Update


class FedExP(FedAvg):
    """FedExP (Jhunjhunwala et al. 2023, Algorithm 1): w moves by eta_g times the mean of the deltas.

    eta_g = max(1, sum_k p_k ||delta_k||^2 / (2 (||sum_k p_k delta_k||^2 + epsilon))). The paper's p_k are 1 /
    M, which is `[cohort] weights = "uniform"`.
    """

    own_step: ClassVar[str] = "server has a step of its own"
    needs_mean: ClassVar[str] = "its server's step goes by the mean of the updates' squared norms"
    not_clipped = "the server's step goes by the norms of the updates as they are"
    not_private = "reports the norms of updates, and a norm is a query; use fedavg"
    not_noised = "it reports the norms of updates, and a norm is a query; use fedavg"

    epsilon: Annotated[float, Field(gt=0)] = 1e-3
    """Added to the squared norm of the mean, so that small deltas give small steps."""

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Move w by eta_g times the weighted mean of the silos' deltas."""
        mean = cohort.mean(self.train, w=server.state["w"])
        delta, scalars = mean["delta"], mean.scalars.copy()
        factor = max(1.0, scalars.pop("squared_norm") / (2 * (squared_norm(delta) + self.epsilon)))
        server.state["w"] += factor * delta
        return {**scalars, "eta_g": factor}

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train as FedAvg does, and also send the delta's squared norm."""
        run = silo.train_locally(w, self.local)
        return silo.update(delta=run.delta, train_loss=run.loss, squared_norm=squared_norm(run.delta))


def squared_norm(vector: Tensor) -> float:
    """Return the squared L2 norm of a vector, summed in float64."""
    return float(vector.double().square().sum())
