"""Local training: what a silo does between receiving the model and answering.
The one loop over batches is here."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from mpifl.common import accelerators
from mpifl.data import Batches, rows
from mpifl.silo import compiled
from mpifl.silo.chain import OfOutputs, chain
from mpifl.silo.dense import Dense
from mpifl.silo.fits import LOCAL
from mpifl.silo.flat import Allocate, FlatModel, Objective
from mpifl.silo.optimizers import OPTIMIZERS, Batch, Constant, Correction, Optimizer, Proximal
from mpifl.silo.settings import LocalTraining
from mpifl.silo.steps import Counted, Step, stepper, weighed
from mpifl.silo.way import PLAIN, Way, steps_of

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
        steps: Optimizer steps, with those that fp16 has left out.
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
    counted: Counted | None = None,
    way: Way = PLAIN,
    of_outputs: OfOutputs | None = None,
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
        counted, way: See `stepper`; how batches are drawn, and gradients taken.
        of_outputs: The objective as a loss of the model's outputs and targets; None if it sees more.
    """
    model.trained.copy_(start)
    model.module.train()
    first = next(drawn := way.batches(batches, local, generator, beside))
    wanted = model, local, objective, correct, first[0], batches.ragged
    with accelerators.rounding(model.device, tf32=local.precision == "tf32"):
        whole = compiled.find(*wanted) if local.compile else None
        total = whole.total if whole else way.total(model)
        optimizer = whole.optimizer if whole else _optimizer(model, batches, local, correct, round, kept)
        way = _quickest(model, local, of_outputs, optimizer) if way is PLAIN else way
        plain = stepper(model, local, objective, correct, total, optimizer, counted, way)
        with way.lent():
            steps, examples = _taken(
                itertools.chain([first], drawn), whole, plain, local.deadline, model.device
            )
    delta, loss = model.delta(start, allocate), float(total) / examples
    return LocalRun(delta, model.trained, steps, examples, loss, optimizer)


def _quickest(
    model: FlatModel, local: LocalTraining, of_outputs: OfOutputs | None, optimizer: Optimizer | None
) -> Way:
    """Return the plain way, or what does the same for such a model and loss in less time."""
    if of_outputs is None or not local.full:
        return PLAIN
    if optimizer is None and (dense := Dense(model)).layers:
        return dense
    return chain(model, of_outputs) or PLAIN


def _taken(
    drawn: Iterable[tuple[Batch, bool]],
    whole: compiled.CompiledStep | None,
    plain: Step,
    deadline: float | None,
    device: torch.device,
) -> tuple[int, int]:
    """Take the steps of a training; return how many they were, over how many examples.

    A deadline looks at the clock when a step is done, and not when a GPU was asked for it.
    """
    steps = examples = 0
    until = time.perf_counter() + deadline if deadline else math.inf
    finish = whole.finish if whole is not None else lambda: None
    for batch, ends in drawn:
        if whole is not None and rows(batch[1]) == whole.size:
            whole(batch)
        else:
            finish()
            plain(batch, ends)
        steps, examples = steps + ends, examples + rows(batch[1])
        if deadline and ends:
            finish()
            accelerators.finish(device)
            if time.perf_counter() > until:
                break
    finish()
    return steps, examples


def gradient(
    model: FlatModel,
    batches: Iterator[Batch],
    at: Tensor,
    objective: Objective,
    counted: Counted | None = None,
) -> LocalRun:
    """Return the mean gradient over all examples of `batches` at the parameters `at`,
    shape [P], as a run's `delta`.

    Args:
        model: Whose gradient.
        batches: All examples once.
        at: The parameters.
        objective: The mean loss of a batch.
        counted: The same as a sum, and what it is divided by, where that is not the examples.
    """
    model.trained.copy_(at)
    model.module.train()
    mean = torch.zeros_like(model.trained)
    total = torch.zeros((), device=model.device)
    steps, examples, weights = 0, 0, 0.0
    for batch in batches:
        loss, weight = weighed(objective, counted, model.module, batch)
        mean.add_(model.flatten(model.gradients(loss)), alpha=weight)
        total.add_(loss.detach(), alpha=weight)
        steps, examples, weights = steps + 1, examples + rows(batch[1]), weights + weight
    weights = weights or 1.0  # where nothing counts, nothing is to be done
    return LocalRun(mean.div_(weights), model.trained, steps, examples, float(total) / weights)


def _optimizer(
    model: FlatModel,
    batches: Batches,
    local: LocalTraining,
    correct: Correction | None,
    round: int,
    kept: Kept | None,
) -> Optimizer | None:
    """Return what takes the steps of a training; None if they are plain and need nothing kept."""
    known = correct is None or isinstance(correct, Constant | Proximal)
    if known and LOCAL.honours("plain", local):
        return None
    schedule = local.schedule_of(round, steps_of(local, len(batches)))
    optimizer = OPTIMIZERS[local.optimizer](local, model.trained, schedule)
    if kept is not None:
        optimizer.resume(*kept)
    return optimizer
