"""An algorithm of one's own, in a file of one's own."""

from typing import Annotated

import torch
from pydantic import Field

from mpifl import FedAvg, Proximal


class FedACG(FedAvg):
    """FedACG (Kim, Kim & Han 2024, Algorithm 1): silos train from where momentum will have led the server."""

    decay: Annotated[float, Field(ge=0, lt=1)] = 0.85
    """lambda: how much of the momentum m lives on."""
    beta: Annotated[float, Field(ge=0)] = 0.01
    """The pull towards where the silos began."""

    def begin(self, server):
        super().begin(server)
        server.state["m"] = torch.zeros_like(server.state["w"])

    def round(self, server, cohort):
        ahead = server.state["w"] + self.decay * server.state["m"]
        mean = cohort.mean(self.train, w=ahead)
        server.state["m"] = self.decay * server.state["m"] + mean["delta"]
        server.state["w"] += server.state["m"]
        return mean.scalars

    def train(self, silo, w):
        run = silo.train_locally(w, self.local, correct=Proximal(w, self.beta))
        return silo.update(delta=run.delta, train_loss=run.loss)
