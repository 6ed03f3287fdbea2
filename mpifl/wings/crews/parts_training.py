"""Trainings by parts of batches: who takes the parts, and what they are parts of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mpifl.algorithms import Algorithm
from mpifl.common import InputError
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import Counted, LocalRun, Loss, Training, counted_of, train
from mpifl.wings.crews.batch_parts import PartOf, Parts, Takes, take_here

_TOLD: set[str] = set()


def vectors_here(model: FlatModel, count: int) -> list[Tensor]:
    """Return vectors for as many gradients, of this rank alone."""
    return [torch.empty_like(model.trained) for _ in range(count)]


class ByParts:
    """Answers trainings by gradients of parts.

    Args:
        algorithm: Whose silos train.
        count: How many parts a batch has.
        takes: Who takes them; by default this rank.
        made: Gives a model as many vectors as there are parts.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        count: int,
        takes: Takes = take_here,
        made: Callable[[FlatModel, int], list[Tensor]] = vectors_here,
    ) -> None:
        self._algorithm, self._count, self._takes, self._made = algorithm, count, takes, made
        self._vectors: WeakKeyDictionary[FlatModel, list[Tensor]] = WeakKeyDictionary()

    def __call__(self, asked: Training) -> LocalRun:
        """Train a silo; plainly where nobody else can know what is minimised, and a line says so."""
        if (loss := name_of(self._algorithm, asked)) is None:
            _tell(asked.model)
            return train(asked)
        if asked.model not in self._vectors:
            self._vectors[asked.model] = self._made(asked.model, self._count)
        which = PartOf(asked.settings.precision, asked.order.initial_seed(), loss)
        method = Parts(self._count, self._takes, which, self._vectors[asked.model])
        run = train(replace(asked, method=method))
        if wrote := asked.model.buffers.written():
            what = f"training wrote to the buffer '{wrote[0]}', and each part would learn of its own examples"
            raise InputError(f"[silo] parts = {self._count}: {what}; leave [silo] out")
        return run


def name_of(algorithm: Algorithm, asked: Training) -> str | None:
    """Return how another rank knows what a training minimises: "" for the task's loss, else the name of the
    algorithm's method; None where it cannot."""
    if asked.loss.summed is not None:
        return ""
    objective = asked.loss.mean
    if objective == algorithm.objective:
        return "objective"
    name = getattr(objective, "__name__", "")
    return name if getattr(algorithm, name, None) == objective else None


def loss_named(algorithm: Algorithm, name: str) -> Counted:
    """Return the loss of that name as a sum, and what it is divided by."""
    if name:
        return counted_of(Loss(getattr(algorithm, name)))
    task = algorithm.task
    return lambda module, x, y: task.loss(task.outputs(module, x), y)


def _tell(model: FlatModel) -> None:
    why = "what is minimised is a function that no other rank knows"
    line = f"[silo] parts: {why}; such batches stay whole, at one rank"
    if model.is_reporter and line not in _TOLD:
        print(line, file=sys.stderr, flush=True)
    _TOLD.add(line)
