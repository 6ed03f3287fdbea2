import torch
from pydantic import PositiveFloat

from mpifl.algorithms import FedAvg


class FedDyn(FedAvg):
    """FedDyn (Acar et al. 2021, Algorithm 1): each silo's objective is bent until all silos agree on one optimum."""

    alpha: PositiveFloat = 0.1

    def begin(self, server):
        super().begin(server)
        server.state["h"] = torch.zeros_like(server.state["w"])

    def round(self, server, cohort):
        mean = cohort.mean(self.train, w=server.state["w"])
        server.state["h"] -= self.alpha * len(mean) / cohort.population * mean["delta"]
        server.state["w"] += mean["delta"] - server.state["h"] / self.alpha
        return mean.scalars

    def train(self, silo, w):
        own = silo.state.get("g", torch.zeros_like(w))
        run = silo.train_locally(w, self.local, correct=lambda g, at, batch: g.add_(at - w, alpha=self.alpha).sub_(own))
        silo.keep(g=own - self.alpha * run.delta)
        return silo.update(weight=1.0, delta=run.delta, train_loss=run.loss)
