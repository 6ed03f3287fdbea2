"""What a step does with a gradient: the algorithm corrects it, and the silo's optimizer steps along it.

Some numbers may change between rounds or steps (learning rates, FedProx's mu). They are floats in the plain
step. In a compiled step they are tensors, so that a new number needs no new compilation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from mpifl.common import InputError
from mpifl.silo.steps.local_settings import LocalTraining

Number: TypeAlias = float | Tensor
Batch: TypeAlias = tuple[Tensor, ...]
"""(x, y), followed by the tensors of `beside`."""
Correction: TypeAlias = "Callable[[Tensor, Tensor, Batch], object] | Constant | Proximal"
"""A change of the gradient before the optimizer gets it. A function of (flat gradient, its parameters, batch)
works in place. `Constant` and `Proximal`, which most papers need, cost a plain step one vector operation."""


def _add(to: Tensor, vector: Tensor, scale: Number) -> Tensor:
    """Add scale * vector in place."""
    return to.add_(vector * scale) if isinstance(scale, Tensor) else to.add_(vector, alpha=scale)


def _check_vector(name: str, vector: object, parameters: int) -> None:
    if not (isinstance(vector, Tensor) and vector.shape == (parameters,)):
        given = f"shape {[*vector.shape]}" if isinstance(vector, Tensor) else f"{vector!r:.40}"
        raise InputError(f"{name} takes a vector as long as w, of shape [{parameters}]; {given} is given")


@dataclass(frozen=True)
class Constant:
    """Add a vector, shape [P], to every gradient: SCAFFOLD's c - c_k."""

    vector: Tensor

    def check(self, parameters: int) -> None:
        """Raise InputError if the vector is not one of so many numbers."""
        _check_vector("Constant", self.vector, parameters)

    def __call__(self, gradient: Tensor, at: Tensor, batch: Batch) -> None:
        """Correct a flat gradient in place."""
        gradient.add_(self.vector)

    def descend(self, trained: Tensor, lr: float) -> None:
        """Apply the correction of a plain step to the parameters."""
        trained.add_(self.vector, alpha=-lr)


@dataclass(frozen=True)
class Proximal:
    """Add the gradient of (mu/2) ||w - centre||^2: FedProx, Ditto."""

    centre: Tensor
    mu: Number

    def check(self, parameters: int) -> None:
        """Raise InputError if the centre is not a vector of so many numbers."""
        _check_vector("Proximal", self.centre, parameters)

    def __call__(self, gradient: Tensor, at: Tensor, batch: Batch) -> None:
        """Correct a flat gradient in place."""
        _add(_add(gradient, at, self.mu), self.centre, -self.mu)

    def descend(self, trained: Tensor, lr: float) -> None:
        """Apply the correction of a plain step to the parameters."""
        trained.lerp_(self.centre, lr * self.mu)


class Optimizer(ABC):
    """An optimizer of a silo's steps, over one flat vector.

    Attributes:
        state: What a step leaves for the next: vectors of shape [P], zeros at first.
        steps: How many steps the state stands for.
    """

    def __init__(self, local: LocalTraining, trained: Tensor) -> None:
        self.state = [torch.zeros_like(trained) for _ in range(self.vectors(local))]
        self._local, self.steps = local, 0

    def restart(self) -> None:
        """Forget the steps taken."""
        self.steps = 0
        for vector in self.state:
            vector.zero_()

    def resume(self, state: Sequence[Tensor], steps: int) -> None:
        """Continue with the state after this many steps."""
        self.steps = steps
        for own, kept in zip(self.state, state, strict=True):
            own.copy_(kept)

    def step(self, trained: Tensor, gradient: Tensor, lr: float) -> None:
        """Clip the gradient if the settings say so, and take one step in place.

        Args:
            trained: The parameters, shape [P].
            gradient: The flat gradient; it may be overwritten.
            lr: The learning rate of this step.
        """
        if self._local.clip_norm is not None:
            clip(gradient, self._local.clip_norm)
        self.descend(trained, gradient, self.state, self.rates(lr))

    @staticmethod
    @abstractmethod
    def vectors(local: LocalTraining) -> int:
        """Return how many vectors the state has."""

    @abstractmethod
    def rates(self, lr: float) -> tuple[float, ...]:
        """Return the numbers that the next step needs at a learning rate, and count that step as taken."""

    @abstractmethod
    def descend(
        self, trained: Tensor, gradient: Tensor, state: Sequence[Tensor], rates: Sequence[Number]
    ) -> None:
        """Take one step in place; the gradient may be overwritten."""


class SGD(Optimizer):
    """Gradient descent with momentum and weight decay, as `torch.optim.SGD` defines it."""

    @staticmethod
    def vectors(local: LocalTraining) -> int:
        """Return 1 (the velocity) with momentum, else 0."""
        return 1 if local.momentum else 0

    def rates(self, lr: float) -> tuple[float, ...]:
        """Return the learning rate."""
        self.steps += 1
        return (lr,)

    def descend(
        self, trained: Tensor, gradient: Tensor, state: Sequence[Tensor], rates: Sequence[Number]
    ) -> None:
        """Take one step in place; the gradient may be overwritten."""
        local = self._local
        if local.weight_decay:
            gradient.add_(trained, alpha=local.weight_decay)
        if local.momentum:
            (velocity,) = state
            velocity.mul_(local.momentum).add_(gradient)
            gradient = gradient.add_(velocity, alpha=local.momentum) if local.nesterov else velocity
        _add(trained, gradient, -rates[0])


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015); adamw decays the weights separately (Loshchilov & Hutter 2019)."""

    @staticmethod
    def vectors(local: LocalTraining) -> int:
        """Return 2: both moments."""
        return 2

    def rates(self, lr: float) -> tuple[float, ...]:
        """Return the learning rate, and two numbers that correct the moments' bias towards 0."""
        self.steps += 1
        local = self._local
        scale: float = (1 - local.beta2**self.steps) ** 0.5
        return lr, lr / (1 - local.beta1**self.steps), scale

    def descend(
        self, trained: Tensor, gradient: Tensor, state: Sequence[Tensor], rates: Sequence[Number]
    ) -> None:
        """Take one step in place; the gradient may be overwritten."""
        local, (first, second), (lr, rate, scale) = self._local, state, rates
        if local.optimizer == "adamw":
            trained.mul_(1 - lr * local.weight_decay)
        elif local.weight_decay:
            gradient.add_(trained, alpha=local.weight_decay)
        first.lerp_(gradient, 1 - local.beta1)
        second.mul_(local.beta2).addcmul_(gradient, gradient, value=1 - local.beta2)
        denominator = torch.sqrt(second).div_(scale).add_(local.epsilon)
        _add(trained, first / denominator, -rate)


def clip(gradient: Tensor, bound: float) -> None:
    """Scale flat gradients, shape [..., P], in place to an L2 norm of at most `bound` (Pascanu et al.
    2013)."""
    norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True, dtype=torch.float64)
    gradient.mul_((bound / norm).clamp(max=1.0).float())


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": Adam}
