"""Trainings by parts of batches: who takes the parts, and what they are parts of."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mpifl.algorithms import Algorithm
from mpifl.silo import Asked, Batch, Counted, FlatModel, LocalRun, PartOf, Parts, Sums, counted_of, take_here

_TOLD: set[str] = set()


class Alone:
    """Takes all parts by this rank."""

    def vectors(self, model: FlatModel, count: int) -> list[Tensor]:
        """Return vectors for as many gradients."""
        return [torch.empty_like(model.trained) for _ in range(count)]

    def take(
        self,
        model: FlatModel,
        loss: str,
        counted: Counted,
        which: PartOf,
        parts: Mapping[int, Batch],
        vectors: Sequence[Tensor],
    ) -> list[Sums]:
        """Take all parts of a batch."""
        return take_here(model, counted, which, parts, vectors)


class ByParts:
    """Answers trainings by gradients of parts.

    Args:
        algorithm: Whose silos train.
        count: How many parts a batch has.
        hands: Who takes them.
    """

    def __init__(self, algorithm: Algorithm, count: int, hands: Alone) -> None:
        self._algorithm, self._count, self._hands = algorithm, count, hands
        self._vectors: WeakKeyDictionary[FlatModel, list[Tensor]] = WeakKeyDictionary()

    def __call__(self, asked: Asked) -> LocalRun:
        """Train a silo; plainly where nobody else can know what is minimised, and a line says so."""
        if (loss := name_of(self._algorithm, asked)) is None:
            _tell(asked.model)
            return asked.plainly()
        if asked.model not in self._vectors:
            self._vectors[asked.model] = self._hands.vectors(asked.model, self._count)

        def take(model: FlatModel, *given: Any) -> list[Sums]:
            return self._hands.take(model, loss, *given)

        which = PartOf(asked.local.precision, asked.generator.initial_seed(), 0)
        counted = counted_of(asked.objective, asked.counted)
        way = Parts(counted, self._count, take, which, self._vectors[asked.model])
        return replace(asked, way=way).plainly()


def name_of(algorithm: Algorithm, asked: Asked) -> str | None:
    """Return how another rank knows what a training minimises: "" for the task's loss, else the name of the
    algorithm's method; None where it cannot."""
    if asked.counted is not None:
        return ""
    if asked.objective == algorithm.objective:
        return "objective"
    name = getattr(asked.objective, "__name__", "")
    return name if getattr(algorithm, name, None) == asked.objective else None


def loss_named(algorithm: Algorithm, name: str) -> Counted:
    """Return the loss of that name as a sum, and what it is divided by."""
    if name:
        return counted_of(getattr(algorithm, name), None)
    task = algorithm.task
    return lambda module, x, y: task.loss(task.outputs(module, x), y)


def _tell(model: FlatModel) -> None:
    why = "what is minimised is a function that no other rank knows"
    line = f"[silo] parts: {why}; such batches stay whole, at one rank"
    if model.is_reporter and line not in _TOLD:
        print(line, file=sys.stderr, flush=True)
    _TOLD.add(line)
