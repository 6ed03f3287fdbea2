"""Local training: what a silo does between receiving the model and answering. The one loop over batches is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator
from torch import Tensor

from mpifl.batches import Batches
from mpifl.flat import FlatModel, Objective, cross_entropy

Batch: TypeAlias = tuple[Tensor, Tensor]
Correction = Callable[[Tensor, Tensor, Batch], object]
"""(gradient, where it was taken, batch): changes the flat gradient in place before the optimizer takes it."""


class LocalTraining(BaseModel):
    """The `[local]` table of a job: the optimizer, how far and in which batches a silo trains in one round."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 0.1
    lr_decay: Annotated[float, Field(gt=0)] = 1.0
    """The learning rate of round t is lr * lr_decay^t."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    nesterov: bool = False
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    epochs: PositiveInt | None = None
    """1 unless `steps` is given."""
    steps: PositiveInt | None = None
    """Number of batches, in place of epochs."""
    batch_size: PositiveInt | Literal["full"] = 10

    @model_validator(mode="before")
    @classmethod
    def _one_epoch(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("steps") is None and given.get("epochs") is None:
            return {**given, "epochs": 1}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> LocalTraining:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("takes epochs or steps, not both")
        if self.optimizer != "sgd" and self.momentum:
            raise ValueError(f"momentum belongs to sgd; {self.optimizer} takes beta1 and beta2")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum above 0")
        return self

    def at_round(self, round: int) -> LocalTraining:
        """Return these settings with the learning rate of a round, counted from 0."""
        return self if self.lr_decay == 1.0 else self.model_copy(update={"lr": self.lr * self.lr_decay**round})

    @property
    def plain(self) -> bool:
        """Whether a step is trained -= lr * gradient and nothing else."""
        return self.optimizer == "sgd" and not self.momentum and not self.weight_decay


@dataclass(frozen=True)
class LocalRun:
    """What came of local training.

    Attributes:
        delta: Trained parameters minus those it started from, shape [P].
        end: The trained parameters, shape [P]; a view of the lent model, gone with the next training.
        steps: Optimizer steps taken.
        examples: Examples seen, counted once an epoch.
        loss: Mean loss over these examples, each at the parameters of its step.
    """

    delta: Tensor
    end: Tensor
    steps: int
    examples: int
    loss: float


def train(
    model: FlatModel,
    batches: Batches,
    start: Tensor,
    local: LocalTraining,
    generator: torch.Generator,
    objective: Objective = cross_entropy,
    correct: Correction | None = None,
) -> LocalRun:
    """Train the model from `start`, shape [P], and return what came of it.

    Args:
        local: Settings of this round, the learning rate already decayed.
        generator: Draws the order of the examples.
        objective: The loss whose gradient is taken.
        correct: Changes the flat gradient in place before each step: one vector operation in SCAFFOLD or FedProx.
    """
    model.trained.copy_(start)
    model.module.train()
    step = None if local.plain and correct is None else OPTIMIZERS[local.optimizer](model.trained, local)
    total = torch.zeros((), device=model.device)
    steps = examples = 0
    for batch in _batches(batches, local, generator):
        loss = objective(model.module, *batch)
        gradients = model.gradients(loss)
        if step is None:
            model.descend(gradients, local.lr)
        else:
            flat = model.flatten(gradients)
            if correct is not None:
                correct(flat, model.trained, batch)
            step(flat)
        total.add_(loss.detach(), alpha=len(batch[1]))
        steps, examples = steps + 1, examples + len(batch[1])
    return LocalRun(model.trained - start, model.trained, steps, examples, float(total) / examples)


def gradient(model: FlatModel, batches: Iterator[Batch], at: Tensor, objective: Objective = cross_entropy) -> LocalRun:
    """Return the mean gradient over all examples of `batches` at the parameters `at`, shape [P], as a run's `delta`."""
    model.trained.copy_(at)
    model.module.train()
    mean = torch.zeros_like(model.trained)
    total = torch.zeros((), device=model.device)
    steps = examples = 0
    for batch in batches:
        loss = objective(model.module, *batch)
        mean.add_(model.flatten(model.gradients(loss)), alpha=len(batch[1]))
        total.add_(loss.detach(), alpha=len(batch[1]))
        steps, examples = steps + 1, examples + len(batch[1])
    return LocalRun(mean.div_(examples), model.trained, steps, examples, float(total) / examples)


def _batches(batches: Batches, local: LocalTraining, generator: torch.Generator) -> Iterator[Batch]:
    if local.epochs is not None:
        for _ in range(local.epochs):
            yield from batches.shuffled(local.batch_size, generator)
        return
    left = local.steps or 0
    while left > 0:
        for batch in batches.shuffled(local.batch_size, generator):
            yield batch
            left -= 1
            if left == 0:
                return


class SGD:
    """Gradient descent with momentum and weight decay on a flat vector, as `torch.optim.SGD` defines it."""

    def __init__(self, trained: Tensor, local: LocalTraining) -> None:
        self._trained, self._local = trained, local
        self._velocity: Tensor | None = None

    def __call__(self, gradient: Tensor) -> None:
        """Take one step; the gradient's storage may be used up."""
        local = self._local
        if local.weight_decay:
            gradient.add_(self._trained, alpha=local.weight_decay)
        if local.momentum:
            gradient = self._accelerate(gradient)
        self._trained.add_(gradient, alpha=-local.lr)

    def _accelerate(self, gradient: Tensor) -> Tensor:
        if self._velocity is None:
            self._velocity = gradient.clone()
        else:
            self._velocity.mul_(self._local.momentum).add_(gradient)
        return gradient.add_(self._velocity, alpha=self._local.momentum) if self._local.nesterov else self._velocity


class Adam:
    """Adam (Kingma & Ba 2015) on a flat vector; adamw decays the weights apart from it (Loshchilov & Hutter 2019)."""

    def __init__(self, trained: Tensor, local: LocalTraining) -> None:
        self._trained, self._local = trained, local
        self._first, self._second = torch.zeros_like(trained), torch.zeros_like(trained)
        self._steps = 0

    def __call__(self, gradient: Tensor) -> None:
        """Take one step; the gradient's storage may be used up."""
        local, self._steps = self._local, self._steps + 1
        if local.optimizer == "adamw":
            self._trained.mul_(1 - local.lr * local.weight_decay)
        elif local.weight_decay:
            gradient.add_(self._trained, alpha=local.weight_decay)
        self._first.lerp_(gradient, 1 - local.beta1)
        self._second.mul_(local.beta2).addcmul_(gradient, gradient, value=1 - local.beta2)
        scale = (1 - local.beta2**self._steps) ** 0.5
        denominator = torch.sqrt(self._second).div_(scale).add_(local.epsilon)
        self._trained.addcdiv_(self._first, denominator, value=-local.lr / (1 - local.beta1**self._steps))


OPTIMIZERS: dict[str, type[SGD] | type[Adam]] = {"sgd": SGD, "adam": Adam, "adamw": Adam}
