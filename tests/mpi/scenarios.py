"""The jobs that are trained on every number of ranks, and the user's own modules that they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from mpifl.algorithms import Cohort, FedAvg
from mpifl.flat import FlatModel
from mpifl.messages import Update, uniform
from mpifl.server import Server
from mpifl.silo import Silo

Job = dict[str, Any]
MLP: Job = {"name": "mlp", "hidden": [16]}


def job(name: str, shards: str = "digits", rounds: int = 4, **tables: Any) -> Job:
    """A small job; tables replace the usual ones."""
    usual = {"model": MLP, "local": {"lr": 0.1, "batch_size": 16}, "checkpoint": {"every": 2}, "device": "cpu"}
    return {"name": name, "shards": shards, "seed": 3, "rounds": rounds, **usual, **tables}


JOBS = [
    job("fedavg"),
    job("fedavg-full", rounds=1, local={"lr": 0.5, "batch_size": "full"}),
    job("fedsgd-full", rounds=1, local={"lr": 0.5}, algorithm={"name": "fedsgd"}),
    job(
        "partial",
        shards="many",
        local={"lr": 0.1, "lr_decay": 0.9, "momentum": 0.9, "steps": 5},
        cohort={"fraction": 0.5, "weights": "uniform"},
        server_optimizer={"name": "adam", "lr": 0.02},
    ),
    job("batchnorm", shards="many", model={"name": "scenarios:normalised"}),
    job("stateful", shards="many", algorithm={"name": "scenarios:Stateful"}, cohort={"fraction": 0.6}),
    job("lost", shards="many", algorithm={"name": "scenarios:LosesARound"}, cohort={"fraction": 0.6}),
    job("nan", shards="many", algorithm={"name": "scenarios:Poisoned"}, cohort={"quorum": 0.5}),
    job("few", shards="few"),
]


def normalised(shape: Sequence[int], classes: int) -> nn.Module:
    """A network with BatchNorm, whose statistics travel, and dropout, whose randomness must be derived."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, classes)
    )


class Stateful(FedAvg):
    """Keeps state on both sides and asks twice a round."""

    def begin(self, server: Server) -> None:
        super().begin(server)
        server.state["c"] = torch.zeros_like(server.state["w"])

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        state = server.state
        first = cohort.mean(self.look, w=state["w"])
        mean = cohort.mean(self.learn, w=state["w"], c=state["c"], scale=0.5)
        self.server_optimizer.step(state, mean["delta"])
        state["c"] += len(mean) / cohort.population * (mean["shift"] + first["gradient"])
        return mean.scalars

    def look(self, silo: Silo, w: Tensor) -> Update:
        run = silo.gradient(w)
        silo.keep(seen=run.delta)
        return silo.update(gradient=run.delta)

    def learn(self, silo: Silo, w: Tensor, c: Tensor, scale: float) -> Update:
        own = silo.state.get("own", torch.zeros_like(c))
        run = silo.train_locally(w, self.local, correct=lambda grad, at, batch: grad.add_(c - own, alpha=scale))
        silo.keep(own=own + run.delta + 0.1 * silo.state["seen"], rounds=silo.state.get("rounds", 0) + 1)
        return silo.update(delta=run.delta, shift=uniform(-run.delta), train_loss=run.loss)


class LosesARound(Stateful):
    """As Stateful, but in round 2 a silo fails in the second question of the first attempt, after much was kept."""

    def learn(self, silo: Silo, w: Tensor, c: Tensor, scale: float) -> Update:
        update = super().learn(silo, w, c, scale)
        failed = _failed.setdefault(silo.model, set())  # every training of this process lends a model of its own
        if silo.round == 1 and silo.id not in failed:
            failed.add(silo.id)
            raise OSError("the disk is gone")
        return update


_failed: WeakKeyDictionary[FlatModel, set[int]] = WeakKeyDictionary()


class Poisoned(FedAvg):
    """One silo diverges; the others go on without it."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        update = super().train(silo, w)
        if silo.id == 2:
            update.vectors["delta"] = torch.full_like(w, float("nan"))
        return update
