"""Protection of the labels in gradients that leave the label holder, and how much these still reveal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mpifl.wings.privacy import KEY, Secret
from mpifl.wings.site import digest

LEAK = "norm_leak_auc"
"""The name of the round's figure."""


def randomised(labels: Tensor, classes: int, epsilon: float, secret: Secret) -> Tensor:
    """Return labels after C-ary randomised response. All that follows from them has epsilon-label-DP.

    A label is kept with probability e^eps / (e^eps + C - 1). Otherwise one of the other labels replaces it,
    all with the same probability (Warner 1965; Kairouz et al. 2016, "Discrete distribution estimation under
    local privacy"). The same labels and the same secret give the same result.

    Args:
        labels: Class numbers from 0 to C - 1, one for each of n rows.
        classes: C.
        epsilon: Above 0.
        secret: The label holder's.
    """
    told = labels.long().reshape(-1)
    draws = secret.draws("labels", digest([classes, epsilon], {"labels": told}))
    kept = draws.chosen(len(told), 1 / (1 + (classes - 1) * math.exp(-epsilon)))
    other = (told + 1 + draws.below(len(told), classes - 1)).remainder_(classes)
    return other.index_copy_(0, kept, told[kept]).to(labels.dtype).view(labels.shape)


def equalised(gradient: Tensor, noise: Tensor) -> Tensor:
    """Return g_i (1 + s_i e_i), s_i^2 = max_j ||g_j||^2 / ||g_i||^2 - 1.

    In expectation all rows then have the largest squared norm of the batch (Li et al. 2022, "Label leakage
    and protection in two-party split learning", max_norm). A row of zeros has no direction and stays zero.

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
    """Return the area under the ROC curve: the probability that a one has a higher score than a zero.

    A tie counts half. Return None if there are no ones or no zeros.

    Args:
        scores: Shape [n].
        ones: The label of each score, 0 or 1, shape [n].
    """
    chosen = ones == 1
    count, others = int(chosen.sum()), int((~chosen).sum())
    if not (count and others):
        return None
    _, where, times = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = times.cumsum(0).double() - (times - 1) / 2  # equal scores share their mean rank
    above = float(ranks[where][chosen].sum()) - count * (count + 1) / 2
    return above / (count * others)


class Passage:
    """Protects the gradients that the label holder sends in one round, and measures what they reveal.

    A round that is repeated gets a new passage, so that nothing is counted twice.
    """

    def __init__(self, gate: Gate, round: int) -> None:
        self._gate, self._round, self._batches = gate, round, 0
        self._rows: list[Tensor] = []
        self._lengths: list[list[Tensor]] = []

    def sent(self, rows: Tensor, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return the protected gradients of a batch, and note their norms.

        Args:
            rows: The batch's rows, shape [n].
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
        """Return how much the norms of the gradients reveal about the true labels, for the worst silo.

        The figure is the area under the ROC curve: 0.5 reveals nothing, 1 all. A silo can reverse the
        ranking, so the figure is never below 0.5. The result is empty unless there are two classes.
        """
        if self._gate.ones is None or not self._rows:
            return {}
        ones = self._gate.ones[torch.cat(self._rows)]
        found = [leak_auc(torch.cat(lengths), ones) for lengths in zip(*self._lengths, strict=True)]
        seen = [max(auc, 1 - auc) for auc in found if auc is not None]
        return {LEAK: max(seen)} if seen else {}

    def _protected(self, silo: int, gradient: Tensor) -> Tensor:
        """Return the gradient to send to a silo. Noise follows from round, batch, silo and gradient."""
        secret = self._gate.secret
        if secret is None or not self._gate.equalises or silo == self._gate.holder:
            return gradient
        question = digest([self._round, self._batches, silo], {"gradient": gradient})
        return equalised(gradient, secret.draws("max-norm", question).exact_normal(len(gradient)))


class Gate:
    """How gradients leave the label holder. By default they are neither protected nor measured.

    Args:
        holder: The label holder's own silo; its gradients do not leave the site.
        ones: The true labels of all training rows, 0 or 1, shape [n]; None unless there are two classes.
        secret: The secret that the protection draws from; None without protection.
        equalises: Whether noise hides the norms of gradients; see `equalised`.
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
        """Return the entry of the server's state that identifies the secret, so that none replaces it."""
        return {} if self.secret is None else {KEY: self.secret.known_by}

    def open(self, state: Mapping[str, Any], round: int) -> Passage:
        """Return the passage for the gradients of a round.

        Raises:
            InputError: the training has begun with another secret.
        """
        if self.secret is not None:
            self.secret.check(state)
        return Passage(self, round)
