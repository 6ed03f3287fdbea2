"""Clusters of silos, each with a model of its own; silos pick the model that fits them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.fedsgd import FedSGD
from mpifl.algorithms.server import Server
from mpifl.common import InputError, rng
from mpifl.data.shards import AnySpec
from mpifl.silo import Score, Silo
from mpifl.wire import Mean, Update


class IFCA(FedAvg):
    """IFCA (Ghosh et al. 2020, Algorithm 1, model averaging): k models, and each silo trains one of them.

    In each round a silo takes the model of least loss on its training examples, and trains it. A model
    becomes the mean of what its silos have made of it; one that nobody took stays. Silos are judged by the
    model of least loss, too. The first model begins as `[model]` says, each other with the elements of every
    tensor in another order, as random and as large: the paper leaves that open.
    """

    own_step: ClassVar[str] = "server moves each cluster's model to the mean of its silos"
    needs_mean: ClassVar[str] = "silos of each cluster are averaged apart"
    varied: ClassVar[bool] = True

    clusters: Annotated[int, Field(ge=1, le=64)] = 2
    """k, how many models there are."""

    def why_not_private(self) -> str:
        """Say that silos go by losses."""
        return "picks a cluster by the loss on all examples, and a loss is a query; take fedavg"

    def why_not_noised(self) -> str:
        """Say that silos tell their clusters."""
        return "each silo tells its cluster, and that is a query"

    def why_not_masked(self) -> str:
        """Say that clusters are told."""
        return "the server learns who is in which cluster, and a sum over few silos hides little"

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """See that clusters begin apart, and that the model has no running statistics.

        Raises:
            InputError: it is not so.
        """
        key = f"[algorithm] name = '{type(self).__name__.lower()}'"
        if any(buffer.numel() for buffer in module.buffers()):
            why = "running statistics (BatchNorm) are not averaged for each cluster"
            raise InputError(f"{key}: {why}; take GroupNorm")
        if not any(bool((p != p.flatten()[:1]).any()) for p in module.parameters() if p.requires_grad):
            why = "each tensor of the model begins with one value, and all clusters would be one"
            raise InputError(f"{key}: {why}; take a model that begins at random")

    def begin(self, server: Server) -> None:
        """Start each cluster from weights of its own."""
        for j, name in enumerate(self._names):
            draw = rng.torch_stream(server.seed, "cluster", j)
            views = [view.flatten().cpu() for view in server.model.views(server.model.shared)]
            parts = [one[torch.randperm(len(one), generator=draw)] if j else one for one in views]
            server.state[name] = torch.cat(parts)

    def round(self, server: Server, cohort: Cohort) -> dict[str, Any]:
        """Move each cluster's model along the mean of its silos, and tell who was in which."""
        mean = cohort.mean(self.train_nearest, **self.global_model(server))
        scalars = {name: of for name, of in mean.scalars.items() if name != "cluster"}
        for name in self._names:
            if f"delta_{name}" in mean.vectors:
                server.state[name] += self._step(mean, name)
        return {**scalars, "cluster_silos": mean.of_silos("cluster")}

    def _step(self, mean: Mean, name: str) -> Tensor:
        """Return how far a cluster's model moves, shape [P]."""
        return mean[f"delta_{name}"]

    def train_nearest(self, silo: Silo, **models: Tensor) -> Update:
        """Train the model of least loss."""
        cluster = self._nearest(silo, models)
        name = self._names[cluster]
        update = self.train(silo, models[name])
        update.vectors = {f"delta_{name}": update.vectors["delta"]}
        update.scalars |= {f"share_{one}": float(one == name) for one in self._names}
        update.scalars["cluster"] = cluster
        return update

    def _nearest(self, silo: Silo, models: dict[str, Tensor]) -> int:
        losses = [silo.loss(models[name]) for name in self._names]
        return losses.index(min(losses))

    def global_model(self, server: Server) -> dict[str, Tensor]:
        """Return the model of every cluster."""
        return {name: server.state[name] for name in self._names}

    def personal_model(self, silo: Silo, **models: Tensor) -> Tensor:  # type: ignore[override]  # w is one of them
        """Return the model of least loss on the silo's training examples."""
        return models[self._names[self._nearest(silo, models)]]

    def score(self, server: Server, everyone: Cohort, split: str) -> Score | None:
        """Score nothing at the server: none of the models is for all."""
        return None

    @property
    def _names(self) -> list[str]:
        return ["w", *(f"w_{j}" for j in range(1, self.clusters))]


class IFCASGD(IFCA, FedSGD):
    """IFCA (Ghosh et al. 2020, Algorithm 1, gradient averaging): one gradient a silo and round.

    w_j -= eta sum_k p_k s_kj grad F_k(w_j), with eta = `local.lr`, s_kj = 1 where silo k took cluster j, and
    p_k silo k's share in the round's silos. The paper's p_k are 1/m, of all silos: the same where all take
    part.
    """

    def _step(self, mean: Mean, name: str) -> Tensor:
        """Return the mean of a cluster's steps times what its silos weigh of the round's."""
        return mean.scalars[f"share_{name}"] * mean[f"delta_{name}"]
