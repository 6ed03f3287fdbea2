"""What leaves the holder of labels: how it is protected, and how well it tells the labels all the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mpifl.wings.privacy import KEY, Secret
from mpifl.wings.site import digest

LEAK = "norm_leak_auc"
"""What the figure of a round is called."""


def randomised(labels: Tensor, classes: int, epsilon: float, secret: Secret) -> Tensor:
    """Return labels as C-ary randomised response tells them: epsilon-label-DP for whatever follows from them.

    A label is kept with e^eps / (e^eps + C - 1), else one of the others takes its place, all alike likely
    (Warner 1965; Kairouz et al. 2016, "Discrete distribution estimation under local privacy").
    The same labels are told alike whenever the secret is the same.

    Args:
        labels: Class numbers from 0 to C - 1, one for each of n rows.
        classes: C.
        epsilon: Above 0.
        secret: That of their holder.
    """
    told = labels.long().reshape(-1)
    draws = secret.draws("labels", digest([classes, epsilon], {"labels": told}))
    kept = draws.chosen(len(told), 1 / (1 + (classes - 1) * math.exp(-epsilon)))
    other = (told + 1 + draws.below(len(told), classes - 1)).remainder_(classes)
    return other.index_copy_(0, kept, told[kept]).to(labels.dtype).view(labels.shape)


def equalised(gradient: Tensor, noise: Tensor) -> Tensor:
    """Return g_i (1 + s_i e_i), s_i^2 = max_j ||g_j||^2 / ||g_i||^2 - 1.

    So the squared lengths of all rows are the largest one's, in expectation (Li et al. 2022, "Label leakage
    and protection in two-party split learning", max_norm). A row of zeros has no direction, and stays.

    Args:
        gradient: g, shape [rows, width].
        noise: e ~ N(0, 1), float64 of shape [rows].
    """
    exact = gradient.double()
    squares = exact.square().sum(1)
    ratio = torch.where(squares > 0, squares.max() / squares, 1.0)
    factor = (ratio - 1).clamp_(min=0).sqrt_().mul_(noise.to(ratio.device)).add_(1)
    return exact.mul_(factor[:, None]).to(gradient.dtype)


def leak_auc(scores: Tensor, ones: Tensor) -> float | None:
    """Return the area under the ROC curve: by which chance the score of a one is above that of a nought.

    A tie counts half. None is returned where there are no ones, or nothing else.

    Args:
        scores: Shape [n].
        ones: 0 or 1 for each, shape [n].
    """
    chosen = ones == 1
    count, others = int(chosen.sum()), int((~chosen).sum())
    if not (count and others):
        return None
    _, where, times = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = times.cumsum(0).double() - (times - 1) / 2  # the mean of those that are equal
    above = float(ranks[where][chosen].sum()) - count * (count + 1) / 2
    return above / (count * others)


class Passage:
    """The gradients of one round on their way out of the holder of labels.

    A round that is lost is begun with another, so that nothing is counted twice.
    """

    def __init__(self, gate: Gate, round: int) -> None:
        self._gate, self._round, self._batches = gate, round, 0
        self._rows: list[Tensor] = []
        self._lengths: list[list[Tensor]] = []

    def sent(self, rows: Tensor, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of a batch as silos are to be sent them, and note how long they are.

        Args:
            rows: Its rows, shape [n].
            gradients: One for each silo, shape [n, width], in the order of all silos.
        """
        told = [self._protected(silo, gradient) for silo, gradient in enumerate(gradients)]
        self._batches += 1
        if self._gate.ones is not None:
            self._rows.append(rows)
            others = [g for silo, g in enumerate(told) if silo != self._gate.holder]
            self._lengths.append([g.detach().double().square().sum(1).cpu() for g in others])
        return told

    def figures(self) -> dict[str, float]:
        """Return how well the lengths of what any one silo was sent rank the true labels, by the area under
        the ROC curve: 0.5 tells nothing, 1 all. A ranking can be turned round, so the figure is never below
        0.5. Nothing is returned where there are not two classes."""
        if self._gate.ones is None or not self._rows:
            return {}
        ones = self._gate.ones[torch.cat(self._rows)]
        found = [leak_auc(torch.cat(lengths), ones) for lengths in zip(*self._lengths, strict=True)]
        seen = [max(auc, 1 - auc) for auc in found if auc is not None]
        return {LEAK: max(seen)} if seen else {}

    def _protected(self, silo: int, gradient: Tensor) -> Tensor:
        """Return what a silo is sent; the noise is drawn anew for whatever differs in the question."""
        secret = self._gate.secret
        if secret is None or not self._gate.equalises or silo == self._gate.holder:
            return gradient
        question = digest([self._round, self._batches, silo], {"gradient": gradient})
        return equalised(gradient, secret.draws("max-norm", question).exact_normal(len(gradient)))


class Gate:
    """Where gradients leave the holder of labels; by default nothing protects them, and nothing is seen.

    Args:
        holder: The silo of the holder's own: what it is told leaves nobody.
        ones: The true labels of all rows that are trained on, 0 or 1, shape [n]; None where they are others.
        secret: What is drawn from in protecting labels; None where nothing is.
        equalises: Whether noise hides how long gradients are; see `equalised`.
    """

    def __init__(
        self,
        holder: int = 0,
        ones: Tensor | None = None,
        secret: Secret | None = None,
        *,
        equalises: bool = False,
    ) -> None:
        self.holder, self.ones, self.secret, self.equalises = holder, ones, secret, equalises

    def known(self) -> dict[str, int]:
        """Return what the server's state is to hold of the secret, so that no other takes its place."""
        return {} if self.secret is None else {KEY: self.secret.known_by}

    def open(self, state: Mapping[str, Any], round: int) -> Passage:
        """Let the gradients of a round through.

        Raises:
            InputError: the training has begun with another secret.
        """
        if self.secret is not None:
            self.secret.check(state)
        return Passage(self, round)
