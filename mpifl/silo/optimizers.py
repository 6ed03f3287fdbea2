"""What is done with a gradient: an algorithm corrects it, the silo's optimizer steps along it.

Some numbers may change from round to round or step to step (learning rates, FedProx's mu). They are floats in
the plain step and tensors while a step is compiled, so that another number needs no other compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from mpifl.silo.settings import LocalTraining

Number: TypeAlias = float | Tensor
Batch: TypeAlias = tuple[Tensor, ...]
"""(x, y), and behind them what was to be gathered beside."""
Correction: TypeAlias = "Callable[[Tensor, Tensor, Batch], object] | Constant | Proximal"
"""What changes a gradient before the optimizer takes it: a function of (flat gradient, where it was taken,
batch) that does so in place, or one of the two that most papers need, which cost a plain step one vector
operation."""


def _add(to: Tensor, vector: Tensor, scale: Number) -> Tensor:
    """Add scale * vector in place."""
    return to.add_(vector * scale) if isinstance(scale, Tensor) else to.add_(vector, alpha=scale)


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
    mu: Number

    def __call__(self, gradient: Tensor, at: Tensor, batch: Batch) -> None:
        """Correct a flat gradient in place."""
        _add(_add(gradient, at, self.mu), self.centre, -self.mu)

    def descend(self, trained: Tensor, lr: float) -> None:
        """Do to the parameters what the correction does in a plain step."""
        trained.lerp_(self.centre, lr * self.mu)


class SGD:
    """Gradient descent with momentum and weight decay, as `torch.optim.SGD` defines it.

    Attributes:
        state: What a step leaves for the next, vectors of the parameters' shape; zeros at first.
    """

    def __init__(self, local: LocalTraining, trained: Tensor) -> None:
        self._local = local
        self.state = [torch.zeros_like(trained)] if local.momentum else []

    def restart(self, local: LocalTraining) -> None:
        """Forget the steps taken; the settings may differ from those before in their learning rate."""
        self._local = local
        for vector in self.state:
            vector.zero_()

    def rates(self) -> tuple[float, ...]:
        """Return the numbers that the next step takes, which counts as taken then."""
        return (self._local.lr,)

    def descend(
        self, trained: Tensor, gradient: Tensor, state: Sequence[Tensor], rates: Sequence[Number]
    ) -> None:
        """Take one step in place; the gradient's storage may be used up."""
        local = self._local
        if local.weight_decay:
            gradient.add_(trained, alpha=local.weight_decay)
        if local.momentum:
            (velocity,) = state
            velocity.mul_(local.momentum).add_(gradient)
            gradient = gradient.add_(velocity, alpha=local.momentum) if local.nesterov else velocity
        _add(trained, gradient, -rates[0])


class Adam:
    """Adam (Kingma & Ba 2015); adamw decays the weights apart from it (Loshchilov & Hutter 2019).

    Attributes:
        state: Both moments, vectors of the parameters' shape; zeros at first.
    """

    def __init__(self, local: LocalTraining, trained: Tensor) -> None:
        self._local, self._steps = local, 0
        self.state = [torch.zeros_like(trained), torch.zeros_like(trained)]

    def restart(self, local: LocalTraining) -> None:
        """Forget the steps taken; the settings may differ from those before in their learning rate."""
        self._local, self._steps = local, 0
        for vector in self.state:
            vector.zero_()

    def rates(self) -> tuple[float, ...]:
        """Return the numbers that the next step takes, which counts as taken then."""
        local, self._steps = self._local, self._steps + 1
        scale: float = (1 - local.beta2**self._steps) ** 0.5
        return local.lr, local.lr / (1 - local.beta1**self._steps), scale

    def descend(
        self, trained: Tensor, gradient: Tensor, state: Sequence[Tensor], rates: Sequence[Number]
    ) -> None:
        """Take one step in place; the gradient's storage may be used up."""
        local, (first, second), (lr, rate, scale) = self._local, state, rates
        if local.optimizer == "adamw":
            trained.mul_(1 - lr * local.weight_decay)
        elif local.weight_decay:
            gradient.add_(trained, alpha=local.weight_decay)
        first.lerp_(gradient, 1 - local.beta1)
        second.mul_(local.beta2).addcmul_(gradient, gradient, value=1 - local.beta2)
        denominator = torch.sqrt(second).div_(scale).add_(local.epsilon)
        _add(trained, first / denominator, -rate)


OPTIMIZERS: dict[str, type[SGD] | type[Adam]] = {"sgd": SGD, "adam": Adam, "adamw": Adam}
