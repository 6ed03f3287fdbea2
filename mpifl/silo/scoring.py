"""Losses, metrics, outputs and logits of a model on examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from mpifl.data import rows
from mpifl.data.batches import Batches
from mpifl.learning.metrics import (
    Metric,
    computed,
    pack_states,
    read_states,
    single_scores,
    update_metrics,
    write_states,
)
from mpifl.learning.tasks import Task, tensor_of
from mpifl.silo.lanes import ALONE, Given, Lanes, Made
from mpifl.silo.parameters import Buffers, FlatModel, Objective
from mpifl.silo.steps import EVALUATION_BATCH, Counted, EvaluationBatch, weighed

Found = TypeVar("Found")
_FITS: WeakKeyDictionary[FlatModel, int] = WeakKeyDictionary()
"""The batch size that fits in memory for a model, if the usual size did not fit."""


@dataclass(frozen=True)
class Score:
    """A model's score on some examples: the mean loss, the task's metrics by name, and the number of
    examples."""

    loss: float
    metrics: dict[str, float]
    examples: int
    states: dict[str, Tensor] = field(default_factory=dict, compare=False)
    """The metrics' states as `pack_states` writes them. Their sums over silos give the metrics of all
    examples."""
    single: dict[int, Tensor] = field(default_factory=dict, compare=False)
    """The probabilities of single examples as `single_scores` returns them. No silo sends them."""
    weight: float = field(default=0.0, compare=False)
    """What the loss is the mean over: examples, or targets such as tokens. 0 is not known."""


@torch.no_grad()
def logits(model: FlatModel, w: Tensor, batches: Batches) -> Tensor:
    """Return the logits of the model w, shape [P], on all examples of `batches`, shape [n, classes, ...]."""
    model.trained.copy_(w)
    model.module.eval()
    return torch.cat([tensor_of(model.module(x)) for x, _ in batches.in_order(EVALUATION_BATCH)])


@torch.no_grad()
def outputs(module: nn.Module, task: Task, batches: Batches, size: int) -> Tensor:
    """Return a module's outputs for all examples of `batches`, shape [n, ...], on the CPU. The module's parts
    keep their modes (training or evaluation)."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    found = [task.outputs(module, x).cpu() for x, _ in batches.in_order(size)]
    for part, training in modes:
        part.training = training
    return torch.cat(found)


@torch.no_grad()
def mean_loss(
    model: FlatModel,
    w: Tensor,
    batches: Batches,
    objective: Objective,
    size: int = EVALUATION_BATCH,
    lanes: Lanes = ALONE,
    counted: Counted | None = None,
) -> float:
    """Return the mean of an objective at w, shape [P], over all examples of `batches`, `size` at a time. See
    `training_loop.gradient` for `counted`."""
    model.trained.copy_(w)
    model.module.eval()

    def of(module: nn.Module, batch: tuple[Any, Any]) -> tuple[Tensor, float]:
        loss, weight = weighed(objective, counted, module, batch)
        return loss.double(), weight

    def act(lanes: Lanes) -> float:
        total, weights = torch.zeros((), dtype=torch.float64, device=model.device), 0.0
        for loss, weight in usable(lanes, batches, size).each(model.module, of, batches.in_order(size)):
            total.add_(loss, alpha=weight)
            weights += weight
        return float(total) / (weights or 1.0)

    return purely(model, lanes, act)


@torch.no_grad()
def evaluate(
    model: FlatModel,
    w: Tensor,
    batches: Batches,
    task: Task,
    own_objective: Objective | None = None,
    size: EvaluationBatch = EVALUATION_BATCH,
    lanes: Lanes = ALONE,
) -> Score:
    """Score the model w, shape [P], on all examples of `batches`, `size` at a time. The loss is
    `own_objective`, by default the task's loss."""
    return as_fits(model, size, partial(_evaluated, model, w, batches, task, own_objective, lanes))


def _evaluated(
    model: FlatModel,
    w: Tensor,
    batches: Batches,
    task: Task,
    own_objective: Objective | None,
    lanes: Lanes,
    size: int,
) -> Score:
    model.trained.copy_(w)
    model.module.eval()

    def of(module: nn.Module, batch: tuple[Any, Any]) -> tuple[Tensor, Any]:
        return task.outputs(module, batch[0]), batch[1]

    def act(lanes: Lanes) -> Scoring:
        scoring = Scoring(task, model.device)
        for found, y in usable(lanes, batches, size).each(model.module, of, batches.in_order(size)):
            scoring.add(found, y)
        return scoring

    scoring = purely(model, lanes, act)
    if own_objective is not None:
        return scoring.score(mean_loss(model, w, batches, own_objective, size, lanes))
    return scoring.score()


@dataclass(frozen=True)
class Afresh(Lanes):
    """One lane that restores the model's buffers before each batch."""

    buffers: Buffers | None = None

    def each(
        self, module: nn.Module, act: Callable[[nn.Module, Given], Made], batches: Iterable[Given]
    ) -> Iterator[Made]:
        """Yield `act(module, batch)` for each batch, in order."""
        assert self.buffers is not None
        for batch in batches:
            self.buffers.restore()
            yield act(module, batch)


def purely(model: FlatModel, lanes: Lanes, act: Callable[[Lanes], Found]) -> Found:
    """Return `act(lanes)`, which scores a model, and leave the model's buffers as they were.

    If scoring writes to a model's buffers, each batch begins with the same buffers. So no figure depends on
    which batches a rank scores, or in which order.
    """
    if not model.buffers.at_scoring:
        found = act(lanes)
        if not model.buffers.at_scoring and not model.buffers.written():
            return found
        model.buffers.at_scoring = True
    found = act(Afresh(buffers=model.buffers))
    model.buffers.restore()
    return found


def usable(lanes: Lanes, batches: Batches, size: int) -> Lanes:
    """Return the lanes for batches of `size` examples; one lane if such batches are large, since each takes
    memory."""
    return lanes if lanes.count == 1 or batches.bounded(size) == size else ALONE


class Scoring:
    """Adds up losses and metrics, batch by batch, for a score.

    Args:
        task: The task that gives the loss and the metrics.
        device: The device of the outputs.
    """

    def __init__(self, task: Task, device: torch.device) -> None:
        self._task, self._examples = task, 0
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._count: Tensor | int = 0
        self._metrics = {name: _placed(metric, device) for name, metric in task.metrics().items()}

    def add(self, outputs: Tensor, y: Tensor) -> None:
        """Add a batch: a model's outputs, and the targets."""
        total, counted = self._task.loss(outputs, y)
        self._loss += total
        self._count = self._count + counted
        self._examples += rows(y)
        update_metrics(self._metrics.values(), self._task, outputs, y)

    def take(self) -> tuple[Tensor, Tensor | int, dict[str, Tensor], dict[int, Tensor]]:
        """Return what was added since the last call, and reset it: the sum of losses, its divisor, the
        metrics' states, and the single scores. All states must be sums."""
        found = self._loss, self._count, pack_states(self._metrics), single_scores(self._metrics)
        self._loss, self._count = torch.zeros_like(self._loss), 0
        for metric in self._metrics.values():
            write_states(metric, {name: torch.zeros_like(of) for name, of in read_states(metric).items()})
        return found

    def score(self, loss: float | None = None) -> Score:
        """Return the score of all batches; `loss` replaces the task's loss."""
        weight = float(self._count) if loss is None else 0.0
        if loss is None:
            loss = float(self._loss) / weight if weight else math.nan
        values = {name: computed(metric) for name, metric in self._metrics.items()}
        states, single = pack_states(self._metrics), single_scores(self._metrics)
        return Score(loss, values, self._examples, states, single, weight)


def as_fits(model: FlatModel, size: EvaluationBatch, act: Callable[[int], Found]) -> Found:
    """Return `act(size)`; for "auto", halve the usual size until it fits in memory.

    The size that fits a model is remembered. After a failure `act` starts from the beginning, so that one
    size makes the whole figure.
    """
    if size != "auto":
        return act(size)
    while (tried := _FITS.get(model, EVALUATION_BATCH)) > 1:
        try:
            return act(tried)
        except (MemoryError, RuntimeError) as error:
            if not short_of_memory(error):
                raise
        _FITS[model] = tried // 2
        if model.device.type == "cuda":
            torch.cuda.empty_cache()
    return act(1)


def short_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory was short. For the CPU's memory, torch says so only in the
    message."""
    kinds = (MemoryError, torch.cuda.OutOfMemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in str(error)


def _placed(metric: Metric, device: torch.device) -> Metric:
    """Return a metric with its states on a device. Metrics of torchmetrics are modules; others follow their
    inputs."""
    return metric.to(device) if isinstance(metric, torch.nn.Module) else metric
