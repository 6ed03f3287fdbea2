"""Local training: what a silo does between receiving the model and answering.
The one loop over batches is here."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from mpifl.data import Batches, rows
from mpifl.silo import compiled
from mpifl.silo.flat import Allocate, FlatModel, Objective, in_precision, scalar
from mpifl.silo.optimizers import OPTIMIZERS, Batch, Constant, Correction, Optimizer, Proximal, clip
from mpifl.silo.settings import LocalTraining

__all__ = [
    "PLAIN",
    "Batch",
    "Constant",
    "Correction",
    "LocalRun",
    "LocalTraining",
    "Proximal",
    "Way",
    "gradient",
    "steps_of",
    "train",
]


Kept: TypeAlias = tuple[Sequence[Tensor], int]
"""An optimizer's state, and the steps that it is of."""


@dataclass(frozen=True)
class LocalRun:
    """What came of local training.

    Attributes:
        delta: Trained parameters minus those it started from, shape [P].
        end: The trained parameters, shape [P]; a view of the lent model, gone with the next training.
        steps: Optimizer steps taken.
        examples: Examples seen, counted once an epoch.
        loss: Mean loss over these examples, each at the parameters of its step.
        optimizer: What took the steps, None if they were plain; its state is gone with the next training.
    """

    delta: Tensor
    end: Tensor
    steps: int
    examples: int
    loss: float
    optimizer: Optimizer | None = None


class Way:
    """How a training draws its batches, and what gradient it takes of one; by itself the plain way."""

    def batches(
        self, examples: Batches, local: LocalTraining, generator: torch.Generator, beside: Sequence[Tensor]
    ) -> Iterator[Batch]:
        """Yield the batches of a training; see `train` for the arguments."""
        return _batches(examples, local, generator, beside)

    def total(self, model: FlatModel) -> Tensor:
        """Return where the losses are added up, each times its batch's examples."""
        return torch.zeros((), device=model.device)

    def gradients(self, model: FlatModel, objective: Objective, batch: Batch, total: Tensor) -> list[Tensor]:
        """Return the gradient for each parameter, and add the loss to the total."""
        loss = scalar(objective(model.module, *batch))
        total.add_(loss.detach(), alpha=rows(batch[1]))
        return model.gradients(loss)


PLAIN = Way()


def train(
    model: FlatModel,
    batches: Batches,
    start: Tensor,
    local: LocalTraining,
    generator: torch.Generator,
    objective: Objective,
    correct: Correction | None = None,
    beside: Sequence[Tensor] = (),
    allocate: Allocate = torch.empty,
    round: int = 0,
    kept: Kept | None = None,
    way: Way = PLAIN,
) -> LocalRun:
    """Train the model from `start`, shape [P], and return what came of it.

    Args:
        local: Settings of this round, the learning rate already decayed.
        generator: Draws the order of the examples.
        objective: The loss whose gradient is taken.
        correct: Changes each gradient before the step that takes it.
        beside: Tensors of shape [n, ...], an entry an example, that the objective is given beside x and y.
        allocate: Gives the memory for the delta.
        round, kept: Rounds done, where the schedule spans several; the optimizer's state to go on with.
        way: How batches are drawn, and gradients taken.
    """
    model.trained.copy_(start)
    model.module.train()
    first = next(drawn := way.batches(batches, local, generator, beside))
    whole = compiled.find(model, local, objective, correct, first) if local.compile else None
    total = whole.total if whole else way.total(model)
    optimizer = whole.optimizer if whole else _optimizer(model, batches, local, correct, round, kept)
    plain = _stepper(model, local, objective, correct, total, optimizer, way)
    steps = examples = 0
    until = time.perf_counter() + local.deadline if local.deadline else math.inf
    for batch in itertools.chain([first], drawn):
        if whole is not None and rows(batch[1]) == whole.size:
            whole(batch)
        else:
            plain(batch)
        steps, examples = steps + 1, examples + rows(batch[1])
        if local.deadline and time.perf_counter() > until:
            break
    delta, loss = model.delta(start, allocate), float(total) / examples
    return LocalRun(delta, model.trained, steps, examples, loss, optimizer)


def gradient(model: FlatModel, batches: Iterator[Batch], at: Tensor, objective: Objective) -> LocalRun:
    """Return the mean gradient over all examples of `batches` at the parameters `at`,
    shape [P], as a run's `delta`."""
    model.trained.copy_(at)
    model.module.train()
    mean = torch.zeros_like(model.trained)
    total = torch.zeros((), device=model.device)
    steps = examples = 0
    for batch in batches:
        loss = scalar(objective(model.module, *batch))
        mean.add_(model.flatten(model.gradients(loss)), alpha=rows(batch[1]))
        total.add_(loss.detach(), alpha=rows(batch[1]))
        steps, examples = steps + 1, examples + rows(batch[1])
    return LocalRun(mean.div_(examples), model.trained, steps, examples, float(total) / examples)


def _stepper(
    model: FlatModel,
    local: LocalTraining,
    objective: Objective,
    correct: Correction | None,
    total: Tensor,
    optimizer: Optimizer | None,
    way: Way,
) -> Callable[[Batch], None]:
    """Return the function that takes one step on a batch and adds its loss to the total.

    Args:
        optimizer: What takes the step; None if it is a plain one.
    """
    loss_of = in_precision(local.precision, objective)
    lr = local.lr

    def gradients(batch: Batch) -> list[Tensor]:
        return way.gradients(model, loss_of, batch, total)

    if optimizer is None:

        def plain(batch: Batch) -> None:
            found = gradients(batch)
            if isinstance(correct, Constant | Proximal):
                correct.descend(model.trained, lr)
            model.descend(found, lr)

        return plain

    def flat(batch: Batch) -> None:
        gradient = model.flatten(gradients(batch))
        if correct is not None:
            correct(gradient, model.trained, batch)
        if local.clip_norm is not None:
            clip(gradient, local.clip_norm)
        optimizer.descend(model.trained, gradient, optimizer.state, optimizer.rates())

    return flat


def _optimizer(
    model: FlatModel,
    batches: Batches,
    local: LocalTraining,
    correct: Correction | None,
    round: int,
    kept: Kept | None,
) -> Optimizer | None:
    """Return what takes the steps of a training; None if they are plain and need nothing kept."""
    if local.plain and (correct is None or isinstance(correct, Constant | Proximal)):
        return None
    schedule = local.schedule_of(round, steps_of(local, len(batches)))
    optimizer = OPTIMIZERS[local.optimizer](local, model.trained, schedule)
    if kept is not None:
        optimizer.resume(*kept)
    return optimizer


def steps_of(local: LocalTraining, examples: int) -> int:
    """Return how many steps a training takes over so many examples."""
    size = examples if local.batch_size == "full" else local.batch_size
    whole = examples // size if local.drop_last else -(-examples // size)
    return local.steps or (local.epochs or 1) * whole


def _batches(
    batches: Batches, local: LocalTraining, generator: torch.Generator, beside: Sequence[Tensor]
) -> Iterator[Batch]:
    if local.epochs is not None:
        for _ in range(local.epochs):
            yield from batches.shuffled(local.batch_size, generator, beside, drop_last=local.drop_last)
        return
    left = local.steps or 0
    while left > 0:
        for batch in batches.shuffled(local.batch_size, generator, beside, drop_last=local.drop_last):
            yield batch
            left -= 1
            if left == 0:
                return
