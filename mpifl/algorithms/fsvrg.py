"""FSVRG: variance-reduced steps towards the optimum of all data, not of one silo's data."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.silo import Silo
from mpifl.silo.parameters import in_precision
from mpifl.silo.steps import Batch
from mpifl.wire import Update, uniform


class FSVRG(FedAvg):
    """Federated SVRG (Konečný et al. 2016, "Federated optimization", Algorithm 4): variance-reduced steps.

    After the full gradient at w_t, silo k goes through a permutation of its data. Its steps are w -= h_k (S_k
    (grad f_i(w) - grad f_i(w_t)) + grad f(w_t)), with h_k = h / n_k. Then w moves by A times the mean of the
    deltas with weights n_k / n. The paper has epochs = 1 and batch_size = 1; h is `local.lr`. The full
    gradient is over the cohort, so over all silos at `[cohort] fraction = 1`.

    Without `scaling`, S_k = A = I. With it, both are diagonal, for sparse features. The entries of S_k are
    phi^j / phi_k^j: phi^j is the share of all examples where feature j is not 0, and phi_k^j the share of
    silo k's examples. The entries of A are K / omega^j: omega^j is the number of the K silos that have such
    an example. If a silo has no such example, its S_k has 1 there; if no silo has one, A has 1. The gradients
    there are 0. A bias counts as a feature of all examples. Silos are counted in the first round, and again
    when a round has more silos. Shares have the deltas' weights.
    """

    needs_mean: ClassVar[str] = "silos correct their steps by the mean of all gradients"
    absolute: ClassVar[frozenset[str]] = frozenset({"gradient"})
    ways: ClassVar[tuple[str, ...]] = ("fsvrg",)
    not_private = "corrects its steps by gradients of all examples; use fedavg"
    not_clocked = not_private
    not_augmented = "corrects steps by the gradient of the examples as they are"

    scaling: bool = False
    """Scale each feature by how often it is not 0; for logistic regression on sparse features."""

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """Check, with `scaling`, that every weight belongs to a feature.

        Raises:
            InputError: the model is not logistic regression.
        """
        shapes = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
        weight = (spec.classes, math.prod(spec.single.shape))
        if self.scaling and shapes != [("head.weight", weight), ("head.bias", (spec.classes,))]:
            how = "scales each weight by how often its feature is not 0"
            why = "which only logistic regression's have; use [model] name = 'logreg', or scaling = false"
            raise InputError(f"[algorithm] scaling = true: {how}, {why}")

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Ask for the full gradient, then for training with variance-reduced steps."""
        state, counted = server.state, self._counted(server, cohort)
        shares = {"phi": counted["phi"]} if self.scaling else {}
        full = cohort.mean(self.full_gradient, w=state["w"])
        mean = cohort.mean(self.train_reduced, w=state["w"], full=full["gradient"], **shares)
        delta = mean["delta"] * of_weights(counted["a"], state["w"]) if self.scaling else mean["delta"]
        self.server_optimizer.step(state, delta)
        state |= counted
        return mean.scalars

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the number of features, the second dimension of logistic regression's weights."""
        features = server.model.parameters[0].shape[-1]
        return {"share": features, "present": features} if self.scaling else {}

    def _counted(self, server: Server, cohort: Cohort) -> dict[str, Any]:
        """Return phi and the diagonal of A, each of shape [features], and the number of silos counted for
        them."""
        known: dict[str, Any] = {
            key: server.state[key] for key in ("phi", "a", "counted") if key in server.state
        }
        if not self.scaling or known.get("counted", 0) >= len(cohort.silos):
            return known
        if len(cohort.silos) < cohort.population:
            raise InputError(
                "[algorithm] scaling = true: counts features over all silos; use [cohort] fraction = 1.0"
            )
        mean = cohort.mean(self.count)
        # float64 is sent exactly
        phi, present = mean["share"].double(), (mean["present"] * len(mean)).round()
        return {"phi": phi, "a": torch.where(present > 0, len(mean) / present, 1.0), "counted": len(mean)}

    def count(self, silo: Silo) -> Update:
        """Send the share of the silo's examples where each feature is not 0, and whether there is any."""
        share = silo.frequencies()
        return silo.update(share=share, present=uniform((share > 0).double()))

    def full_gradient(self, silo: Silo, w: Tensor) -> Update:
        """Send the mean gradient of the silo's examples at w."""
        return silo.update(gradient=silo.gradient(w).delta)

    def train_reduced(self, silo: Silo, w: Tensor, full: Tensor, phi: Tensor | None = None) -> Update:
        """Take steps whose gradients equal the full gradient on average; their variance falls as w
        converges."""
        # the same precision as in the step, so that both gradients cancel at w
        objective = in_precision(self.local.precision, self.objective)
        scale = None if phi is None else of_weights(quotient(phi, silo.frequencies()), w)

        def reduce(gradient: Tensor, at: Tensor, batch: Batch) -> None:
            gradient.sub_(silo.model.gradient_at(w, objective, batch))
            (gradient if scale is None else gradient.mul_(scale)).add_(full)

        settings = self.local.model_copy(update={"lr": self.local.lr / silo.examples})
        run = silo.train_locally(w, settings, correct=reduce)
        return silo.update(delta=run.delta, train_loss=run.loss)


def quotient(phi: Tensor, own: Tensor) -> Tensor:
    """Return phi^j / phi_k^j, shape [features], and 1 where either is 0."""
    return torch.where((phi > 0) & (own > 0), phi / own, 1.0)


def of_weights(of_features: Tensor, w: Tensor) -> Tensor:
    """Return a factor for each parameter of logistic regression, shape [P]: its feature's factor, and 1 for
    biases."""
    classes = len(w) // (len(of_features) + 1)
    return torch.cat([of_features.to(w).repeat(classes), w.new_ones(classes)])
