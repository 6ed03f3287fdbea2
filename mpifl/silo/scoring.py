"""How a model does on examples: its losses, metrics and logits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from mpifl.data import rows
from mpifl.data.batches import Batches
from mpifl.learning.metrics import Metric, computed, pack_states, read_states, write_states
from mpifl.learning.tasks import Task
from mpifl.silo.lanes import ALONE, Given, Lanes, Made
from mpifl.silo.parameters import Buffers, FlatModel, Objective
from mpifl.silo.steps import EVALUATION_BATCH, Counted, EvaluationBatch, weighed

Found = TypeVar("Found")
_FITS: WeakKeyDictionary[FlatModel, int] = WeakKeyDictionary()
"""How many examples a model was found to take at a time, where it was not the usual number."""


@dataclass(frozen=True)
class Score:
    """How a model does on some examples: mean loss, the task's metrics by name,
    and how many examples there were."""

    loss: float
    metrics: dict[str, float]
    examples: int
    states: dict[str, Tensor] = field(default_factory=dict, compare=False)
    """Of the metrics, as `pack_states` writes them: their sums over silos score all examples."""


@torch.no_grad()
def logits(model: FlatModel, w: Tensor, batches: Batches) -> Tensor:
    """Return the logits of the model w, shape [P], on all examples of `batches`, shape [n, classes, ...]."""
    model.trained.copy_(w)
    model.module.eval()
    return torch.cat([model.module(x) for x, _ in batches.in_order(EVALUATION_BATCH)])


@torch.no_grad()
def outputs(module: nn.Module, task: Task, batches: Batches, size: int) -> Tensor:
    """Return what a module answers for all examples of `batches`, shape [n, ...], on the CPU;
    its parts are left in the modes that they are in."""
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
    """Return the mean of an objective at w, shape [P], over all examples of `batches`, so many at a time; see
    `local.gradient`."""
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
    """Score the model w, shape [P], on all examples of `batches`, so many at a time;
    the loss is the task's if not another's."""
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
    """One lane, in which each batch finds the model's buffers as they were."""

    buffers: Buffers | None = None

    def each(
        self, module: nn.Module, act: Callable[[nn.Module, Given], Made], batches: Iterable[Given]
    ) -> Iterator[Made]:
        """Yield what `act` makes of each batch, in order."""
        assert self.buffers is not None
        for batch in batches:
            self.buffers.restore()
            yield act(module, batch)


def purely(model: FlatModel, lanes: Lanes, act: Callable[[Lanes], Found]) -> Found:
    """Return what `act` makes of a model on some lanes, and leave its buffers as they were.

    Where a model writes to its buffers as it is scored, each batch begins with the same. So no figure depends
    on which batches a rank scores, or in which order.
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
    """Return the lanes for batches of so many examples; one where they are large, since each takes memory."""
    return lanes if lanes.count == 1 or batches.bounded(size) == size else ALONE


class Scoring:
    """Adds up, batch by batch, what a score is made of.

    Args:
        task: Whose loss and metrics it takes.
        device: Where the outputs lie.
    """

    def __init__(self, task: Task, device: torch.device) -> None:
        self._task, self._examples = task, 0
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._count: Tensor | int = 0
        self._metrics = {name: _placed(metric, device) for name, metric in task.metrics().items()}
        self._empty = {name: _copied(read_states(metric)) for name, metric in self._metrics.items()}

    def add(self, outputs: Tensor, y: Tensor) -> None:
        """Add a batch: what a model answers, and the targets."""
        total, counted = self._task.loss(outputs, y)
        self._loss += total
        self._count = self._count + counted
        self._examples += rows(y)
        predictions, targets = self._task.scored(outputs, y)
        for metric in self._metrics.values() if len(targets) else ():  # of a batch none may count
            metric.update(predictions, targets)

    def take(self) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return what was added since this was asked last: the sum of losses, what it is divided by, and the
        states of metrics, all of which must add up; forget it."""
        found = self._loss, self._count, pack_states(self._metrics)
        self._loss, self._count = torch.zeros_like(self._loss), 0
        for name, metric in self._metrics.items():
            write_states(metric, _copied(self._empty[name]))
        return found

    def score(self, loss: float | None = None) -> Score:
        """Return the score of all batches; its loss is the task's if no other is given."""
        if loss is None:
            loss = float(self._loss) / float(self._count) if self._count else math.nan
        values = {name: computed(metric) for name, metric in self._metrics.items()}
        return Score(loss, values, self._examples, pack_states(self._metrics))


def as_fits(model: FlatModel, size: EvaluationBatch, act: Callable[[int], Found]) -> Found:
    """Do something with so many examples at a time, by "auto" with half of them until memory takes them.

    What a model was found to take is remembered. What was begun is done from its beginning, so that a figure
    is that of the size that took it.
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
    """Tell whether memory was short; of the CPU's torch says so in words alone."""
    kinds = (MemoryError, torch.cuda.OutOfMemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in str(error)


def _copied(states: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: state.detach().clone() for name, state in states.items()}


def _placed(metric: Metric, device: torch.device) -> Metric:
    """Return a metric whose states lie on a device: torchmetrics' are modules,
    others follow what they are given."""
    return metric.to(device) if isinstance(metric, torch.nn.Module) else metric
