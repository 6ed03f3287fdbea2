"""Steps of a training: a `Gradient` computes the gradient, and a `Step` moves the parameters along it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from mpifl.data import rows
from mpifl.learning.tasks import Summed, mean
from mpifl.silo.parameters import FlatModel, Objective, in_precision, scalar
from mpifl.silo.steps.local_fits import LOCAL
from mpifl.silo.steps.local_optimizers import Batch, Constant, Optimizer, Proximal
from mpifl.silo.steps.training import Counted, Loss, Step, Training

Found: TypeAlias = "Tensor | list[Tensor]"
"""A gradient: flat, shape [P], or a tensor for each parameter."""
SCALE = 2.0**16
"""The first factor of the loss in float16, as in torch.amp.GradScaler."""
GROWTH = 2000
"""Steps without an overflow after which the factor doubles."""


class Gradient(Protocol):
    """Computes the gradient of a step's batches. It adds their mean losses to `total`, each times its
    examples."""

    total: Tensor

    def __call__(self, batches: Sequence[Batch]) -> Found | None:
        """Return the gradient; None if the step is to be left out."""


def along(t: Training, gradient: Gradient, optimizer: Optimizer | None = None) -> Step:
    """Return a step along a gradient: a plain step, or a step of an optimizer.

    Args:
        t: The training.
        gradient: Computes the gradient.
        optimizer: The optimizer, if other steps of the training share it; by default the settings' own.
    """
    if optimizer is None and is_plain(t):
        return PlainStep(t, gradient)
    return OptimizerStep(t, gradient, optimizer or t.optimizer())


def is_plain(t: Training) -> bool:
    """Return whether a step is trained -= lr * gradient, with at most a constant or proximal correction."""
    known = t.correct is None or isinstance(t.correct, Constant | Proximal)
    return known and LOCAL.honours("plain", t.settings)


class InPlace:
    """The part that all steps share which move the model's own parameters."""

    def begin(self, t: Training) -> None:
        """Put the parameters at the start into the model."""
        t.model.trained.copy_(t.start)

    def finish(self) -> None:
        """Do nothing: no step waits."""

    def delta(self, t: Training) -> Tensor:
        """Return the trained parameters minus those at the start, shape [P]."""
        return t.model.delta(t.start, t.allocate)


class PlainStep(InPlace):
    """The step trained -= lr * gradient, with a constant or proximal correction."""

    optimizer = None

    def __init__(self, t: Training, gradient: Gradient) -> None:
        self._model, self._correct, self._gradient = t.model, t.correct, gradient
        self.total = gradient.total

    def __call__(self, batches: Sequence[Batch], lr: float) -> None:
        """Take one step."""
        if (found := self._gradient(batches)) is None:
            return
        if isinstance(self._correct, Constant | Proximal):
            self._correct.descend(self._model.trained, lr)
        self._model.descend(found, lr)


class OptimizerStep(InPlace):
    """A step by an optimizer, along a corrected gradient."""

    def __init__(self, t: Training, gradient: Gradient, optimizer: Optimizer) -> None:
        self._model, self._gradient, self.optimizer = t.model, gradient, optimizer
        self.total = gradient.total
        # if several batches make a step, a function has already corrected the gradient of each
        of_batch = t.settings.accumulate_batches > 1 and not isinstance(t.correct, Constant | Proximal)
        self._correct = None if of_batch else t.correct

    def __call__(self, batches: Sequence[Batch], lr: float) -> None:
        """Take one step."""
        if (found := self._gradient(batches)) is None:
            return
        gradient, trained = self._model.flat(found), self._model.trained
        if self._correct is not None:
            self._correct(gradient, trained, batches[0])
        self.optimizer.step(trained, gradient, lr)


def by_autograd(t: Training, total: Tensor | None = None) -> Gradient:
    """Return the gradient by PyTorch's autograd; it adds the losses to `total`, if that is given."""
    kind = Autograd if t.settings.accumulate_batches == 1 else Accumulated
    return kind(t, torch.zeros((), device=t.model.device) if total is None else total)


class Autograd:
    """The gradient of one batch."""

    def __init__(self, t: Training, total: Tensor) -> None:
        self._t, self.total = t, total
        self._scale = LossScale() if t.settings.precision == "fp16" else None

    def __call__(self, batches: Sequence[Batch]) -> Found | None:
        """Return the gradient; None if float16 made it infinite or NaN."""
        [batch] = batches
        loss = scalar(self._t.objective(self._t.model.module, *batch))
        self.total.add_(loss.detach(), alpha=rows(batch[1]))
        return self._allowed(self._of(loss))

    def _of(self, loss: Tensor) -> Found:
        model = self._t.model
        return model.gradients(loss) if self._scale is None else self._scale.gradient(model, loss)

    def _allowed(self, found: Found) -> Found | None:
        return found if self._scale is None or self._scale.allows(self._t.model.flat(found)) else None


class Accumulated(Autograd):
    """The gradient of several batches as if they were one.

    A batch's weight is the divisor of its loss. So batches with different numbers of targets equal one batch
    of all. A correction by a function is part of each batch's gradient.
    """

    def __init__(self, t: Training, total: Tensor) -> None:
        super().__init__(t, total)
        self._counted = in_precision(t.settings.precision, counted_of(t.loss))
        self._correct = None if isinstance(t.correct, Constant | Proximal) else t.correct
        self._summed = torch.zeros_like(t.model.trained)

    def __call__(self, batches: Sequence[Batch]) -> Found | None:
        """Return the gradient; None if float16 made it infinite or NaN."""
        model, count, loss = self._t.model, torch.zeros_like(self.total), torch.zeros_like(self.total)
        self._summed.zero_()
        for batch in batches:
            whole, many = self._counted(model.module, *batch)
            gradient = model.flat(self._of(scalar(mean(whole, many))))
            if self._correct is not None:
                self._correct(gradient, model.trained, batch)
            self._summed.add_(gradient.mul_(many))
            count.add_(many)
            loss.add_(whole.detach())
        self.total.add_(mean(loss, count), alpha=sum(rows(batch[1]) for batch in batches))
        return self._allowed(mean(self._summed, count))


class LossScale:
    """A factor of the loss that keeps gradients from vanishing in float16 (Micikevicius et al. 2018, 3.2).

    A step without a finite gradient is left out, and the factor is halved. Each training starts with the
    first factor. The factor is a power of two, so multiplying by it keeps all digits.
    """

    def __init__(self, factor: float = SCALE) -> None:
        self.factor, self._since = factor, 0

    def gradient(self, model: FlatModel, loss: Tensor) -> Tensor:
        """Return the flat gradient of a loss, computed from the scaled loss."""
        return model.flatten(model.gradients(loss * self.factor)).div_(self.factor)

    def allows(self, gradient: Tensor) -> bool:
        """Return whether this gradient is finite, so that the step is taken; adjust the factor."""
        finite = bool(gradient.isfinite().all())
        self._since = self._since + 1 if finite else 0
        if not finite:
            self.factor /= 2
        elif self._since == GROWTH:
            self.factor, self._since = self.factor * 2, 0
        return finite


def weighed(objective: Objective, counted: Counted | None, module: Any, batch: Batch) -> tuple[Tensor, float]:
    """Return the mean loss of a batch, and its weight: the number of examples, or the divisor of the loss."""
    if counted is None:
        return scalar(objective(module, *batch)), rows(batch[1])
    total, count = counted(module, *batch)
    return scalar(mean(total, count)), float(count)


def counted_of(loss: Loss) -> Counted:
    """Return a loss as a sum and its divisor; a loss without a sum is a mean over examples."""

    def over_examples(module: Any, *batch: Any) -> Summed:
        return scalar(loss.mean(module, *batch)) * rows(batch[1]), rows(batch[1])

    return loss.summed or over_examples
