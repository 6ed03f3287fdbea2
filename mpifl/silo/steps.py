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
from mpifl.tasks import Summed, mean

Counted: TypeAlias = Callable[..., Summed]
"""(module, x, y) -> the sum of a batch's losses and what it is to be divided by."""
Step: TypeAlias = Callable[[Batch, bool], None]
"""(batch, whether it ends a step) -> nothing."""


def stepper(
    model: FlatModel,
    local: LocalTraining,
    objective: Objective,
    correct: Correction | None,
    total: Tensor,
    optimizer: Optimizer | None,
    counted: Counted | None = None,
) -> Step:
    """Return the function that takes a batch, and a step if the batch ends one; it adds losses to the total.

    Args:
        optimizer: What takes the step; None if it is a plain one.
        counted: The objective as a sum and what it is divided by; by default it is a mean over examples.
    """
    loss_of = in_precision(local.precision, objective)
    module, lr = model.module, local.lr

    def gradients(batch: Batch) -> list[Tensor]:
        loss = scalar(loss_of(module, *batch))
        total.add_(loss.detach(), alpha=rows(batch[1]))
        return model.gradients(loss)

    def plain(batch: Batch, ends: bool) -> None:
        found = gradients(batch)
        if isinstance(correct, Constant | Proximal):
            correct.descend(model.trained, lr)
        model.descend(found, lr)

    if optimizer is None:
        return plain
    descend = _descent(model, local, optimizer)

    def flat(batch: Batch, ends: bool) -> None:
        gradient = model.flatten(gradients(batch))
        if correct is not None:
            correct(gradient, model.trained, batch)
        descend(gradient)

    if local.accumulate == 1:
        return flat
    return _accumulating(model, local, counted or _over_examples(objective), correct, total, descend)


def _descent(model: FlatModel, local: LocalTraining, optimizer: Optimizer) -> Callable[[Tensor], None]:
    """Return the function that takes a step along a flat gradient."""

    def descend(gradient: Tensor) -> None:
        if local.clip_norm is not None:
            clip(gradient, local.clip_norm)
        optimizer.descend(model.trained, gradient, optimizer.state, optimizer.rates())

    return descend


def _accumulating(
    model: FlatModel,
    local: LocalTraining,
    counted: Counted,
    correct: Correction | None,
    total: Tensor,
    descend: Callable[[Tensor], None],
) -> Step:
    """Return the function that adds up the gradients of batches, and steps along their mean.

    Each batch weighs what it counts, so that batches with other numbers of targets are as one batch of all.
    A correction by a function of the batch is part of the batch's gradient.
    """
    counted = in_precision(local.precision, counted)
    summed, count, loss = (torch.zeros_like(t) for t in (model.trained, total, total))
    seen = 0

    def add(batch: Batch, ends: bool) -> None:
        nonlocal seen
        whole, many = counted(model.module, *batch)
        gradient = model.flatten(model.gradients(scalar(mean(whole, many))))
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


def _over_examples(objective: Objective) -> Counted:
    """Return an objective, a mean over the examples of a batch, as a sum over them."""

    def counted(module: Any, *batch: Any) -> Summed:
        return scalar(objective(module, *batch)) * rows(batch[1]), rows(batch[1])

    return counted
