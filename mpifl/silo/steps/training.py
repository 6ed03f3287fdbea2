"""One training of one silo: what is minimised, on what, how and from where; what takes its steps, and what
came of it."""

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
"""(module, x, y) -> the sum of a batch's losses and what it is to be divided by."""
OfOutputs: TypeAlias = Callable[[Tensor, Any], Tensor]
"""(outputs, y) -> mean loss over the batch, a scalar tensor."""
Enough: TypeAlias = Callable[[int], bool]
"""(steps taken) -> whether the training is to end there."""
Kept: TypeAlias = tuple[Sequence[Tensor], int]
"""An optimizer's state, and the steps that it is of."""


@dataclass(frozen=True)
class Loss:
    """What a training minimises, in the forms that steps can use. A form is None where only the task has it.

    Attributes:
        mean: `(module, x, y, *beside)` -> the mean over a batch.
        summed: The same as a sum, and what that is divided by.
        of_outputs: The same as a function of the model's outputs and the targets.
        weighted: `(module, x, y, *beside, weights)` -> the sum over a batch, each example times its weight.
    """

    mean: Objective
    summed: Counted | None = None
    of_outputs: OfOutputs | None = None
    weighted: Callable[..., Tensor] | None = None


@dataclass(frozen=True)
class Training:
    """One training of one silo.

    Attributes:
        model: The lent model.
        data: The examples.
        start: The parameters to start from, shape [P].
        settings: Those of this round, the learning rate already decayed.
        loss: What is minimised.
        order: Draws the order of the examples.
        correct: Changes each gradient before the step that takes it.
        beside: Tensors of shape [n, ...], an entry an example, that the loss is given beside x and y.
        round: Rounds done, where the schedule spans several.
        kept: The optimizer's state to go on with.
        allocate: Gives the memory for the delta.
        method: How batches are drawn and steps taken; None is the usual way.
        enough: Says after so many steps whether they are enough; the lent model holds what they made.
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

    @functools.cached_property
    def steps(self) -> int:
        """How many steps it takes, unless a deadline ends it."""
        return steps_of(self.settings, len(self.data))

    @functools.cached_property
    def schedule(self) -> RateSchedule:
        """The learning rate of each step: the one place that knows it."""
        return self.settings.schedule_of(self.round, self.steps)

    @functools.cached_property
    def objective(self) -> Objective:
        """The mean loss of a batch, in the precision of the settings."""
        return in_precision(self.settings.precision, self.loss.mean)

    def place(self, step: int) -> str:
        """Return what an error says of where it was raised, at a step counted from 0."""
        return f"round {self.round + 1}, step {step + 1} of {self.steps}"

    def optimizer(self) -> Optimizer:
        """Return an optimizer of these settings, which goes on with what was kept."""
        made = OPTIMIZERS[self.settings.optimizer](self.settings, self.model.trained)
        if self.kept is not None:
            made.resume(*self.kept)
        return made


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


Trains: TypeAlias = Callable[[Training], LocalRun]
"""Who carries a training out."""


class Step(Protocol):
    """Takes the steps of one training: the seam behind which their kinds differ."""

    @property
    def total(self) -> Tensor:
        """The sum of the losses, each times its batch's examples; a scalar."""

    @property
    def optimizer(self) -> Optimizer | None:
        """What keeps moments from step to step; None if nothing does."""

    def __call__(self, batches: Sequence[Batch], lr: float) -> None:
        """Take one step, over one batch, or over the several whose gradients accumulate."""

    def finish(self) -> None:
        """Take the steps that still wait: on a GPU several are one graph."""


class Method(ABC):
    """How a training draws its batches, and what takes its steps."""

    def batches(self, t: Training) -> Iterator[Sequence[Batch]]:
        """Yield the batches of each step, shuffled; an epoch's last batch ends a step."""
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
        """Return what takes the steps."""
