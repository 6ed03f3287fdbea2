"""The one loop over the steps of local training, and the gradient over all examples."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import torch

from mpifl.common import noted
from mpifl.common.machine import accelerators
from mpifl.data import rows
from mpifl.silo.parameters import FlatModel, Objective
from mpifl.silo.steps.local_optimizers import Batch
from mpifl.silo.steps.step import along, by_autograd, weighed
from mpifl.silo.steps.training import Counted, LocalRun, Method, Step, Training


class Usual(Method):
    """Shuffled batches, and steps along gradients of autograd."""

    def step(self, t: Training) -> Step:
        """Return the step of a training."""
        return along(t, by_autograd(t))


USUAL = Usual()


def train(t: Training, usual: Method = USUAL) -> LocalRun:
    """Train a model from `t.start` and return the result; `usual` is used if `t` has no method."""
    method = t.method or usual
    t.model.module.train()
    with accelerators.rounding(t.model.device, tf32=t.settings.precision == "tf32"):
        step = method.step(t)
        step.begin(t)
        losses = StepLosses(t.losses_every, step)
        steps, examples = _taken(t, step, method, losses)
        losses.note(examples)
    delta, loss = step.delta(t), float(step.total) / examples
    return LocalRun(
        delta, lambda: t.model.trained, steps, examples, loss, step.optimizer, losses=losses.noted
    )


class StepLosses:
    """The mean losses of every so many steps, by the differences of a step's total."""

    def __init__(self, every: int, step: Step) -> None:
        self._every, self._step, self._before = every, step, (0.0, 0)
        self.noted: list[float] = []

    def see(self, steps: int, examples: int) -> None:
        """Note the mean since the last one, if so many steps are taken."""
        if self._every and steps % self._every == 0:
            self.note(examples)

    def note(self, examples: int) -> None:
        """Note the mean loss of the examples since the last one, if there are any."""
        total, seen = self._before
        if not self._every or examples == seen:
            return
        self._step.finish()
        self._before = float(self._step.total), examples
        self.noted.append((self._before[0] - total) / (examples - seen))


def _taken(t: Training, step: Step, method: Method, losses: StepLosses) -> tuple[int, int]:
    """Take the steps of a training; return the number of steps and of examples.

    A deadline reads the clock when a step is done, not when it is queued on a GPU.
    """
    steps = examples = 0
    deadline = t.settings.deadline
    until = time.perf_counter() + deadline if deadline else math.inf
    with noted(lambda: t.place(steps)):
        for batches in method.batches(t):
            step(batches, t.schedule.lr(steps))
            steps += 1
            for batch in batches:
                examples += rows(batch[1])
            losses.see(steps, examples)
            if deadline:
                step.finish()
                accelerators.finish(t.model.device)
                if time.perf_counter() > until:
                    break
            if t.enough is not None:
                step.finish()
                if t.enough(steps):
                    break
        step.finish()
    return steps, examples


def gradient(
    model: FlatModel,
    batches: Iterator[Batch],
    at: torch.Tensor,
    objective: Objective,
    counted: Counted | None = None,
) -> LocalRun:
    """Return a run whose `delta` is the mean gradient over all examples of `batches`, at the parameters `at`,
    shape [P].

    Args:
        batches: All examples once.
        at: The parameters.
        objective: The mean loss of a batch.
        counted: The same as a sum and its divisor, if the divisor is not the number of examples.
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
    weights = weights or 1.0  # if no target counts, the gradient and the loss are 0
    return LocalRun(mean.div_(weights), model.trained, steps, examples, float(total) / weights)
