"""What is done with a batch: a step of the model, or a part of one where gradients accumulate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from mpifl.data import rows
from mpifl.silo.flat import FlatModel, Objective, in_precision, scalar
from mpifl.silo.optimizers import Batch, Constant, Correction, Optimizer, Proximal, clip
from mpifl.silo.settings import LocalTraining
from mpifl.silo.way import PLAIN, Way, loss_at
from mpifl.tasks import Summed, mean

Counted: TypeAlias = Callable[..., Summed]
"""(module, x, y) -> the sum of a batch's losses and what it is to be divided by."""
Step: TypeAlias = Callable[[Batch, bool], None]
"""(batch, whether it ends a step) -> nothing."""


SCALE = 2.0**16
"""What the loss is multiplied by at first in float16, as by torch.amp.GradScaler."""
GROWTH = 2000
"""Steps without an overflow after which the factor doubles."""


class LossScale:
    """A factor of the loss, without which gradients vanish in float16 (Micikevicius et al. 2018, 3.2).

    A step whose gradient is not finite is left out, and the factor halved. Each training begins anew. The
    factor is a power of two, so that what it multiplies keeps its digits.
    """

    def __init__(self, factor: float = SCALE) -> None:
        self.factor, self._since = factor, 0

    def gradient(self, model: FlatModel, loss: Tensor) -> Tensor:
        """Return the flat gradient of a loss, taken of its multiple."""
        return model.flatten(model.gradients(loss * self.factor)).div_(self.factor)

    def allows(self, gradient: Tensor) -> bool:
        """Return whether a step along this gradient is to be taken."""
        finite = bool(gradient.isfinite().all())
        self._since = self._since + 1 if finite else 0
        if not finite:
            self.factor /= 2
        elif self._since == GROWTH:
            self.factor, self._since = self.factor * 2, 0
        return finite


def stepper(
    model: FlatModel,
    local: LocalTraining,
    objective: Objective,
    correct: Correction | None,
    total: Tensor,
    optimizer: Optimizer | None,
    counted: Counted | None = None,
    way: Way = PLAIN,
) -> Step:
    """Return the function that takes a batch, and a step if the batch ends one; it adds losses to the total.

    Args:
        optimizer: What takes the step; None if it is a plain one.
        counted: The objective as a sum and what it is divided by; by default it is a mean over examples.
        way: How gradients are taken.
    """
    loss_of = in_precision(local.precision, objective)

    def plain(batch: Batch, ends: bool) -> None:
        descend = way.descent(model, loss_of, batch, total)
        if isinstance(correct, Constant | Proximal):
            correct.descend(model.trained, local.lr)
        descend(local.lr)

    if optimizer is None:
        return plain
    scale = LossScale() if local.precision == "fp16" else None
    descend = _descent(model, local, optimizer, scale)

    def flat(batch: Batch, ends: bool) -> None:
        if scale is None:
            gradient = way.gradient(model, loss_of, batch, total)
        else:
            gradient = scale.gradient(model, loss_at(model, loss_of, batch, total))
        if correct is not None:
            correct(gradient, model.trained, batch)
        descend(gradient)

    if local.accumulate == 1:
        return flat
    counted = in_precision(local.precision, counted or over_examples(objective))
    return _accumulating(model, counted, correct, total, descend, scale)


def _gradient(model: FlatModel, loss: Tensor, scale: LossScale | None) -> Tensor:
    """Return the flat gradient of a loss."""
    return model.flatten(model.gradients(loss)) if scale is None else scale.gradient(model, loss)


def _descent(
    model: FlatModel, local: LocalTraining, optimizer: Optimizer, scale: LossScale | None
) -> Callable[[Tensor], None]:
    """Return the function that takes a step along a flat gradient, if it is finite or nothing was scaled."""

    def descend(gradient: Tensor) -> None:
        if scale is not None and not scale.allows(gradient):
            return
        if local.clip_norm is not None:
            clip(gradient, local.clip_norm)
        optimizer.descend(model.trained, gradient, optimizer.state, optimizer.rates())

    return descend


def _accumulating(
    model: FlatModel,
    counted: Counted,
    correct: Correction | None,
    total: Tensor,
    descend: Callable[[Tensor], None],
    scale: LossScale | None,
) -> Step:
    """Return the function that adds up the gradients of batches, and steps along their mean.

    Each batch weighs what it counts, so that batches with other numbers of targets are as one batch of all.
    A correction by a function of the batch is part of the batch's gradient.
    """
    summed, count, loss = (torch.zeros_like(t) for t in (model.trained, total, total))
    seen = 0

    def add(batch: Batch, ends: bool) -> None:
        nonlocal seen
        whole, many = counted(model.module, *batch)
        gradient = _gradient(model, scalar(mean(whole, many)), scale)
        if correct is not None and not isinstance(correct, Constant | Proximal):
            correct(gradient, model.trained, batch)
        summed.add_(gradient.mul_(many))
        count.add_(many)
        loss.add_(whole.detach())
        seen += rows(batch[1])
        if ends:
            step()

    def step() -> None:
        nonlocal seen
        gradient = mean(summed, count)
        if isinstance(correct, Constant | Proximal):
            correct(gradient, model.trained, ())
        total.add_(mean(loss, count), alpha=seen)
        descend(gradient)
        seen = 0
        for tensor in (summed, count, loss):
            tensor.zero_()

    return add


def weighed(objective: Objective, counted: Counted | None, module: Any, batch: Batch) -> tuple[Tensor, float]:
    """Return the mean loss of a batch, and what it weighs: its examples, or what it is divided by."""
    if counted is None:
        return scalar(objective(module, *batch)), rows(batch[1])
    total, count = counted(module, *batch)
    return scalar(mean(total, count)), float(count)


def over_examples(objective: Objective) -> Counted:
    """Return an objective, a mean over the examples of a batch, as a sum over them."""

    def counted(module: Any, *batch: Any) -> Summed:
        return scalar(objective(module, *batch)) * rows(batch[1]), rows(batch[1])

    return counted
