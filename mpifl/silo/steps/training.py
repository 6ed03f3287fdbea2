"""One training of one silo as a record, its steps and its result."""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from mpifl.data.batches import Batches
from mpifl.learning.tasks import Summed
from mpifl.silo.parameters import Allocate, FlatModel, Objective, in_precision
from mpifl.silo.steps.batch_counts import steps_of
from mpifl.silo.steps.local_optimizers import OPTIMIZERS, Batch, Correction, Optimizer
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.schedule import RateSchedule

Counted: TypeAlias = Callable[..., Summed]
"""(module, x, y) -> the sum of a batch's losses, and its divisor."""
OfOutputs: TypeAlias = Callable[[Tensor, Any], Tensor]
"""(outputs, y) -> mean loss over the batch, a scalar tensor."""
Formula: TypeAlias = Callable[[Tensor, Any], "tuple[Tensor, Tensor] | None"]
"""(outputs, y) -> the batch's mean loss and its gradient for the outputs, with autograd's bits, or None."""
Enough: TypeAlias = Callable[[int], bool]
"""(steps taken) -> whether the training ends there."""
Kept: TypeAlias = tuple[Sequence[Tensor], int]
"""An optimizer's state, and the number of steps that it stands for."""


def without(outputs: Tensor, y: Any) -> None:
    """Return None: there is no formula for a loss."""


@dataclass(frozen=True)
class Loss:
    """The loss that a training minimises, in the forms that steps can use. A form is None if the loss lacks
    it.

    Attributes:
        mean: `(module, x, y, *beside)` -> the mean over a batch.
        summed: The same loss as a sum, and the divisor.
        of_outputs: The same loss as a function of the model's outputs and the targets.
        formula: The loss of outputs with its gradient.
        weighted: `(module, x, y, *beside, weights)` -> the sum over a batch, each example times its weight.
    """

    mean: Objective
    summed: Counted | None = None
    of_outputs: OfOutputs | None = None
    formula: Formula = without
    weighted: Callable[..., Tensor] | None = None


@dataclass(frozen=True)
class Training:
    """One training of one silo.

    Attributes:
        model: The lent model.
        data: The examples.
        start: The parameters to start from, shape [P].
        settings: The settings of this round, with the decayed learning rate.
        loss: The loss to minimise.
        order: Draws the order of the examples.
        correct: Changes each gradient before the step that takes it.
        beside: Further arguments of the loss after x and y: tensors of shape [n, ...], one entry for each
            example.
        round: The round, counted from 0, for a schedule over several rounds.
        kept: The optimizer's state to start from.
        allocate: Gives the memory for the delta.
        method: How batches are drawn and steps taken; None means the usual way.
        enough: Tells after each step whether training may end; the lent model then holds the parameters.
        losses_every: The mean loss of every so many steps is noted; 0 notes none.
    """

    model: FlatModel
    data: Batches
    start: Tensor
    settings: LocalTraining
    loss: Loss
    order: torch.Generator
    correct: Correction | None = None
    beside: Sequence[Tensor] = ()
    round: int = 0
    kept: Kept | None = None
    allocate: Allocate = torch.empty
    method: Method | None = None
    enough: Enough | None = None
    losses_every: int = 0

    @functools.cached_property
    def steps(self) -> int:
        """How many steps the training takes, unless a deadline or `enough` ends it."""
        return steps_of(self.settings, len(self.data))

    @functools.cached_property
    def schedule(self) -> RateSchedule:
        """The learning rate of each step, which only this place knows."""
        return self.settings.schedule_of(self.round, self.steps)

    @functools.cached_property
    def objective(self) -> Objective:
        """The mean loss of a batch, in the precision of the settings."""
        return in_precision(self.settings.precision, self.loss.mean)

    def place(self, step: int) -> str:
        """Return the place that an error message names, at a step counted from 0."""
        return f"round {self.round + 1}, step {step + 1} of {self.steps}"

    def optimizer(self) -> Optimizer:
        """Return an optimizer of these settings, with the kept state."""
        made = OPTIMIZERS[self.settings.optimizer](self.settings, self.model.trained)
        if self.kept is not None:
            made.resume(*self.kept)
        return made


@dataclass(frozen=True)
class LocalRun:
    """The result of local training.

    Attributes:
        delta: The trained parameters minus the parameters at the start, shape [P].
        ended: The trained parameters, or what returns them; see `end`.
        steps: Optimizer steps, including those that fp16 left out.
        examples: The number of examples seen; an example counts once in each epoch.
        loss: The mean loss over these examples, each at the parameters of its step.
        optimizer: The optimizer, None if steps were plain; its state is gone with the next training.
        losses: The mean loss of every `losses_every` steps; the last is of what is left.
    """

    delta: Tensor
    ended: Tensor | Callable[[], Tensor]
    steps: int
    examples: int
    loss: float
    optimizer: Optimizer | None = None
    losses: Sequence[float] = ()

    @property
    def end(self) -> Tensor:
        """The trained parameters, shape [P]; a view of the lent model, gone with the next training."""
        return self.ended if isinstance(self.ended, Tensor) else self.ended()


Trains: TypeAlias = Callable[[Training], LocalRun]
"""The function that carries out a training."""


class Step(Protocol):
    """Takes the steps of one training. Each kind of step is a class with these methods."""

    @property
    def total(self) -> Tensor:
        """The sum of the batches' mean losses, each times the batch's examples; a scalar."""

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer that keeps moments between steps, or None."""

    def begin(self, t: Training) -> None:
        """Get ready for the first step."""

    def __call__(self, batches: Sequence[Batch], lr: float) -> None:
        """Take one step over one batch, or over several batches whose gradients accumulate."""

    def finish(self) -> None:
        """Take the steps that still wait: on a GPU, several steps may form one graph."""

    def delta(self, t: Training) -> Tensor:
        """Return the trained parameters minus those at the start, shape [P]."""


class Method(ABC):
    """How a training draws its batches and takes its steps."""

    def batches(self, t: Training) -> Iterator[Sequence[Batch]]:
        """Yield the shuffled batches of each step; an epoch's last batch ends a step."""
        local, steps = t.settings, 0
        for _ in range(local.epochs) if local.epochs is not None else itertools.count():
            drawn = t.data.shuffled(local.batch_size, t.order, t.beside, drop_last=local.drop_last)
            while group := tuple(itertools.islice(drawn, local.accumulate_batches)):
                yield group
                steps += 1
                if steps == local.steps:
                    return

    @abstractmethod
    def step(self, t: Training) -> Step:
        """Return the step of a training."""
