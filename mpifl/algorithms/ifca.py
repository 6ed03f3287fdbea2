"""IFCA: clusters of silos, each with its own model; a silo picks the model that fits it best."""

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

    In each round a silo picks the model with the lowest loss on its training examples, and trains it. Each
    model becomes the mean of its silos' results; a model that no silo picked stays. Silos are also evaluated
    with the model of lowest loss. The first model has the initial weights of `[model]`. Each other model has
    them with the elements of every tensor in another random order; the paper does not say how models begin.
    """

    own_step: ClassVar[str] = "server moves each cluster's model to the mean of its silos"
    needs_mean: ClassVar[str] = "silos of each cluster are averaged apart"
    varied: ClassVar[bool] = True
    not_private = "picks a cluster by the loss on all examples, and a loss is a query; use fedavg"
    not_noised = "each silo tells its cluster, and that is a query"
    not_masked = "the server learns who is in which cluster, and a sum over few silos hides little"

    clusters: Annotated[int, Field(ge=1, le=64)] = 2
    """k, the number of models."""

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """Check that clusters begin with different models, and that the model has no buffers.

        Raises:
            InputError: the model does not fit.
        """
        key = f"[algorithm] name = '{type(self).__name__.lower()}'"
        if any(buffer.numel() for buffer in module.buffers()):
            why = "running statistics (BatchNorm) are not averaged for each cluster"
            raise InputError(f"{key}: {why}; use GroupNorm")
        if not any(bool((p != p.flatten()[:1]).any()) for p in module.parameters() if p.requires_grad):
            why = "each tensor of the model begins with one value, and all clusters would be one"
            raise InputError(f"{key}: {why}; use a model that begins at random")

    def begin(self, server: Server) -> None:
        """Start each cluster from different weights."""
        for j, name in enumerate(self._names):
            draw = rng.torch_stream(server.seed, "cluster", j)
            views = [view.flatten().cpu() for view in server.model.views(server.model.shared)]
            parts = [one[torch.randperm(len(one), generator=draw)] if j else one for one in views]
            server.state[name] = torch.cat(parts)

    def round(self, server: Server, cohort: Cohort) -> dict[str, Any]:
        """Move each cluster's model by the mean of its silos; report each silo's cluster."""
        mean = cohort.mean(self.train_nearest, **self.global_model(server))
        scalars = {name: of for name, of in mean.scalars.items() if name != "cluster"}
        for name in self._names:
            if f"delta_{name}" in mean.vectors:
                server.state[name] += self._step(mean, name)
        return {**scalars, "cluster_silos": mean.of_silos("cluster")}

    def _step(self, mean: Mean, name: str) -> Tensor:
        """Return the change of a cluster's model, shape [P]."""
        return mean[f"delta_{name}"]

    def train_nearest(self, silo: Silo, **models: Tensor) -> Update:
        """Train the model with the lowest loss."""
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
        """Return the model with the lowest loss on the silo's training examples."""
        return models[self._names[self._nearest(silo, models)]]

    def score(self, server: Server, everyone: Cohort, split: str) -> Score | None:
        """Return None: no model is for all silos, so the server scores none."""
        return None

    @property
    def _names(self) -> list[str]:
        return ["w", *(f"w_{j}" for j in range(1, self.clusters))]


class IFCASGD(IFCA, FedSGD):
    """IFCA (Ghosh et al. 2020, Algorithm 1, gradient averaging): one gradient for each silo and round.

    w_j -= eta sum_k p_k s_kj grad F_k(w_j), with eta = `local.lr`, s_kj = 1 if silo k picked cluster j, and
    p_k silo k's share of the round's weight. The paper's p_k are 1/m over all m silos, which is the same if
    all silos take part with equal weights.
    """

    def _step(self, mean: Mean, name: str) -> Tensor:
        """Return the mean of a cluster's steps times its silos' share of the round's weight."""
        return mean.scalars[f"share_{name}"] * mean[f"delta_{name}"]
