"""The losses that jobs can name: each takes outputs and targets, and returns (sum, count).

For classes, targets have the shape [n, ...] and outputs [n, classes, ...]. For yes and no and for values,
targets have the shape of the outputs. A loss's optional parameters are the keys of `[task]` that it takes. A
target equal to `ignore` counts in neither the sum nor the count.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

Summed = tuple[Tensor, Tensor | int]
"""The sum of a batch's losses, a scalar, and its divisor."""

SMOOTH = 1e-5
"""Added to the numerator and the denominator of the Dice loss. So the loss is 0 for a class without targets
and predictions."""


def cross_entropy(
    outputs: Tensor,
    y: Tensor,
    *,
    weights: Tensor | None = None,
    ignore: int | None = None,
    label_smoothing: float = 0.0,
) -> Summed:
    """Return PyTorch's cross entropy. With `weights` of classes, the divisor is their sum over the
    targets."""
    index = -100 if ignore is None else ignore
    options = {"weight": weights, "ignore_index": index, "label_smoothing": label_smoothing}
    total = F.cross_entropy(outputs, y, reduction="sum", **options)  # type: ignore[arg-type]
    if weights is None and ignore is None:
        return total, y.numel()
    kept, labels = _kept(y, ignore)
    return total, (kept if weights is None else weights[labels] * kept).sum()


def focal(
    outputs: Tensor,
    y: Tensor,
    *,
    weights: Tensor | None = None,
    ignore: int | None = None,
    gamma: float = 2.0,
) -> Summed:
    """Return the focal loss, -w_y (1 - p_y)^gamma log p_y (Lin et al. 2017, eq. 5), over classes."""
    kept, labels = _kept(y, ignore)
    likely = torch.gather(F.log_softmax(outputs, 1), 1, labels.unsqueeze(1)).squeeze(1)
    return _focal(likely, 1.0 if weights is None else weights[labels], kept, gamma)


def bce(outputs: Tensor, y: Tensor, *, weights: Tensor | None = None, ignore: int | None = None) -> Summed:
    """Return the binary cross entropy; `weights` are of no and of yes, as in a cross entropy of two
    classes."""
    kept, labels = _kept(y, ignore)
    losses = F.binary_cross_entropy_with_logits(outputs, labels.to(outputs), reduction="none")
    each = kept if weights is None else weights[labels.long()] * kept
    return (losses * each).sum(), each.sum()


def focal_bce(
    outputs: Tensor,
    y: Tensor,
    *,
    weights: Tensor | None = None,
    ignore: int | None = None,
    gamma: float = 2.0,
) -> Summed:
    """Return the focal loss (Lin et al. 2017, eq. 5) of yes and no; `weights` are of no and of yes."""
    kept, labels = _kept(y, ignore)
    likely = F.logsigmoid(outputs * (2 * labels.to(outputs) - 1))
    return _focal(likely, 1.0 if weights is None else weights[labels.long()], kept, gamma)


def bce_of_labels(
    outputs: Tensor, y: Tensor, *, weights: Tensor | None = None, ignore: int | None = None
) -> Summed:
    """Return the binary cross entropy of several labels, shape [n, labels]; `weights` is PyTorch's
    `pos_weight`, one for each label."""
    kept, labels = _kept(y, ignore)
    options = {"pos_weight": weights, "reduction": "none"}
    losses = F.binary_cross_entropy_with_logits(outputs, labels.to(outputs), **options)  # type: ignore[arg-type]
    return (losses * kept).sum(), kept.sum()


def focal_of_labels(outputs: Tensor, y: Tensor, *, ignore: int | None = None, gamma: float = 2.0) -> Summed:
    """Return the focal loss (Lin et al. 2017, eq. 4) of several labels, shape [n, labels]."""
    return focal_bce(outputs, y, ignore=ignore, gamma=gamma)


def dice(outputs: Tensor, y: Tensor, *, ignore: int | None = None) -> Summed:
    """Return 1 - D for each example, where D is the mean over all classes except the first, the background.

    D = 2 sum(p g) / (sum(p^2) + sum(g^2)) over an example's voxels (Milletari et al. 2016, section 3).
    """
    kept, labels = _kept(y, ignore)
    truth = F.one_hot(labels, outputs.shape[1]).movedim(-1, 1)
    mask = kept.unsqueeze(1)
    p, g = ((part * mask)[:, 1:].flatten(2) for part in (outputs.softmax(1), truth.to(outputs)))
    overlap, whole = 2 * (p * g).sum(2), p.square().sum(2) + g.square().sum(2)
    losses = 1 - ((overlap + SMOOTH) / (whole + SMOOTH)).mean(1)
    return losses.sum(), kept.flatten(1).any(1).sum()


def dice_ce(
    outputs: Tensor, y: Tensor, *, weights: Tensor | None = None, ignore: int | None = None
) -> Summed:
    """Return `dice` plus the mean `cross_entropy` over voxels, for each example (Isensee et al. 2021)."""
    total, examples = dice(outputs, y, ignore=ignore)
    if weights is None and ignore is None:
        return total + mean(*cross_entropy(outputs, y)) * examples, examples
    kept, labels = _kept(y, ignore)
    each = (kept.to(outputs) if weights is None else weights[labels] * kept).flatten(1).sum(1)
    index = -100 if ignore is None else ignore
    losses = F.cross_entropy(outputs, y, weight=weights, ignore_index=index, reduction="none")
    return total + mean(losses.flatten(1).sum(1), each).sum(), examples


def mse(outputs: Tensor, y: Tensor) -> Summed:
    """Return the squared error."""
    return F.mse_loss(outputs, y.to(outputs), reduction="sum"), y.numel()


def mae(outputs: Tensor, y: Tensor) -> Summed:
    """Return the absolute error."""
    return F.l1_loss(outputs, y.to(outputs), reduction="sum"), y.numel()


def huber(outputs: Tensor, y: Tensor, *, delta: float = 1.0) -> Summed:
    """Return the Huber loss (Huber 1964): squared, e^2 / 2, up to an error of `delta`, and linear above."""
    return F.huber_loss(outputs, y.to(outputs), reduction="sum", delta=delta), y.numel()


def poisson(outputs: Tensor, y: Tensor) -> Summed:
    """Return the negative log-likelihood of counts (McCullagh & Nelder 1989, section 6.2).

    Outputs are logarithms of the mean."""
    y = y.to(outputs)
    return (outputs.exp() - y * outputs + torch.lgamma(y + 1)).sum(), y.numel()


def cox(risk: Tensor, y: Tensor) -> Summed:
    """Return the negative log partial likelihood (Cox 1972) of risks, shape [n], over the batch's risk sets.

    y has the shape [n, 2]: the time, and whether the event was then. All examples whose time is not earlier
    are at risk. Tied events have the same risk set (Breslow 1974). The count is the number of events.
    """
    order = y[:, 0].argsort(descending=True)
    risk, before, event = risk[order], -y[order, 0].contiguous(), y[order, 1].to(risk)
    last = torch.searchsorted(before, before, right=True) - 1  # the last with the same time
    at_risk = risk.logcumsumexp(0)[last]
    return ((at_risk - risk) * event).sum(), event.sum()


def mean(total: Tensor, count: Tensor | int) -> Tensor:
    """Return sum / count; if nothing counts, return the sum, which is 0 with gradient 0."""
    if isinstance(count, Tensor):
        return total / torch.where(count > 0, count, torch.ones_like(count))
    return total / (count or 1)


def _kept(y: Tensor, ignore: int | None) -> tuple[Tensor, Tensor]:
    """Return a mask of the targets that count, and the targets with 0 where they do not."""
    if ignore is None:
        return torch.ones_like(y, dtype=torch.bool), y
    kept = y != ignore
    return kept, torch.where(kept, y, torch.zeros_like(y))


def _focal(likely: Tensor, weights: Tensor | float, kept: Tensor, gamma: float) -> Summed:
    """Return the focal loss, given the log probabilities of the true classes."""
    # not 0, since a gamma below 1 has no derivative there
    unlikely = (-torch.expm1(likely)).clamp_min(torch.finfo(likely.dtype).tiny)
    losses = -weights * unlikely.pow(gamma) * likely
    return (losses * kept).sum(), kept.sum()
