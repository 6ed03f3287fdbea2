"""Local training: what a silo does between receiving the model and answering. The one loop over batches is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator
from torch import Tensor

from mpifl.batches import Batches
from mpifl.flat import FlatModel, Objective, cross_entropy

Batch: TypeAlias = tuple[Tensor, ...]
"""(x, y), and behind them what was to be gathered beside."""
Correction: TypeAlias = "Callable[[Tensor, Tensor, Batch], object] | Constant | Proximal"
"""What changes a gradient before the optimizer takes it: a function of (flat gradient, where it was taken, batch) that
does so in place, or one of the two that most papers need, which cost a plain step one vector operation."""


@dataclass(frozen=True)
class Constant:
    """Add a vector, shape [P], to every gradient: SCAFFOLD's c - c_k."""

    vector: Tensor

    def __call__(self, gradient: Tensor, at: Tensor, batch: Batch) -> None:
        """Correct a flat gradient in place."""
        gradient.add_(self.vector)

    def descend(self, trained: Tensor, lr: float) -> None:
        """Do to the parameters what the correction does in a plain step."""
        trained.add_(self.vector, alpha=-lr)


@dataclass(frozen=True)
class Proximal:
    """Add the gradient of (mu/2) ||w - centre||^2: FedProx, Ditto."""

    centre: Tensor
    mu: float

    def __call__(self, gradient: Tensor, at: Tensor, batch: Batch) -> None:
        """Correct a flat gradient in place."""
        gradient.add_(at, alpha=self.mu).sub_(self.centre, alpha=self.mu)

    def descend(self, trained: Tensor, lr: float) -> None:
        """Do to the parameters what the correction does in a plain step."""
        trained.lerp_(self.centre, lr * self.mu)


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
    drop_last: bool = False
    """Leave out an epoch's last batch where it is smaller; BatchNorm cannot train on a batch of one example."""
    stragglers: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The chance of a silo to do, in a round, only a part of its epochs or steps, drawn from 1 to all of them."""
    epochs_of: list[PositiveInt] | None = None
    """Epochs of silo 0, 1, 2, ..., in place of `epochs`; from the start again where there are more silos."""

    @model_validator(mode="before")
    @classmethod
    def _one_epoch(cls, given: Any) -> Any:
        if isinstance(given, dict) and all(given.get(k) is None for k in ("steps", "epochs", "epochs_of")):
            return {**given, "epochs": 1}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> LocalTraining:
        given = [key for key in ("epochs", "epochs_of", "steps") if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"takes {given[0]} or {given[1]}, not both")
        if self.optimizer != "sgd" and self.momentum:
            raise ValueError(f"momentum belongs to sgd; {self.optimizer} takes beta1 and beta2")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum above 0")
        return self

    def at_round(self, round: int) -> LocalTraining:
        """Return these settings with the learning rate of a round, counted from 0."""
        return self if self.lr_decay == 1.0 else self.model_copy(update={"lr": self.lr * self.lr_decay**round})

    def of_silo(self, silo: int, generator: torch.Generator) -> LocalTraining:
        """Return the settings of one silo: the work that it is given, or what it gets done as a straggler."""
        settings = self
        if self.epochs_of is not None:
            settings = settings.model_copy(update={"epochs": self.epochs_of[silo % len(self.epochs_of)]})
        if self.stragglers and float(torch.rand((), generator=generator)) < self.stragglers:
            unit, whole = ("epochs", settings.epochs) if settings.epochs else ("steps", settings.steps or 1)
            part = int(torch.randint(1, whole + 1, (), generator=generator))
            settings = settings.model_copy(update={unit: part})
        return settings

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
    beside: Sequence[Tensor] = (),
) -> LocalRun:
    """Train the model from `start`, shape [P], and return what came of it.

    Args:
        local: Settings of this round, the learning rate already decayed.
        generator: Draws the order of the examples.
        objective: The loss whose gradient is taken.
        correct: Changes each gradient before the step that takes it.
        beside: Tensors of shape [n, ...], an entry an example, that the objective is given beside x and y.
    """
    model.trained.copy_(start)
    model.module.train()
    step = _stepper(model, local, correct)
    total = torch.zeros((), device=model.device)
    steps = examples = 0
    for batch in _batches(batches, local, generator, beside):
        loss = objective(model.module, *batch)
        step(model.gradients(loss), batch)
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


def _stepper(
    model: FlatModel, local: LocalTraining, correct: Correction | None
) -> Callable[[list[Tensor], Batch], None]:
    """Return the function that takes one step with the parameters' gradients of a batch."""
    if local.plain and (correct is None or isinstance(correct, Constant | Proximal)):

        def plain(gradients: list[Tensor], batch: Batch) -> None:
            if correct is not None:
                correct.descend(model.trained, local.lr)
            model.descend(gradients, local.lr)

        return plain
    optimizer = OPTIMIZERS[local.optimizer](model.trained, local)

    def flat(gradients: list[Tensor], batch: Batch) -> None:
        gradient = model.flatten(gradients)
        if correct is not None:
            correct(gradient, model.trained, batch)
        optimizer(gradient)

    return flat


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
