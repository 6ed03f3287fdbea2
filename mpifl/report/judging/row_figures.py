"""What a model says of single rows, so that its metric can be computed of any of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpifl.common import InputError
from mpifl.data import rows
from mpifl.data.batches import Batches
from mpifl.data.shards import Split
from mpifl.learning.metrics import Metric, computed, read_states, summable, update_metrics, write_states
from mpifl.learning.tasks import Task
from mpifl.report.judging.trained import Trained
from mpifl.silo import as_fits
from mpifl.silo.parameters import FlatModel

MOST_STATES = 4096
"""The most numbers of a metric's states that are kept for each row."""


@dataclass(frozen=True)
class RowFigures:
    """A model's main metric on any of some rows.

    Attributes:
        task: Whose metric it is.
        rows: How many rows there are.
        states: The metric's states of each row, float64 [rows, numbers], where they add up and are few.
        outputs: Else the model's outputs, [rows, ...].
        y: The targets, [rows, ...], where each row has a tensor of them.
    """

    task: Task
    rows: int
    states: Tensor | None = None
    outputs: Tensor | None = None
    y: Tensor | None = None

    def value(self, counts: Tensor | None = None) -> float:
        """Return the metric; NaN if it is undefined.

        Args:
            counts: How often each row counts, int64 [rows]; by default once.
        """
        codes = self._codes
        if codes is not None and self._keeps(codes if counts is None else codes.repeat_interleave(counts, 0)):
            return computed(self._kept)
        metric = self._empty_metric()
        if self.states is not None:
            weights = torch.ones(self.rows) if counts is None else counts
            _put(metric, weights.double() @ self.states)
        elif self.outputs is not None and self.y is not None:
            at = torch.arange(self.rows)
            at = at if counts is None else at.repeat_interleave(counts)
            update_metrics([metric], self.task, self.outputs[at], self.y[at])
        return computed(metric)

    def exchanged(self, other: RowFigures, rows: np.ndarray) -> RowFigures:
        """Return these figures with those of another model in some rows, bool [rows]."""
        at = torch.from_numpy(rows)

        def of(own: Tensor | None, others: Tensor | None) -> Tensor | None:
            if own is None or others is None:
                return None
            return torch.where(at.reshape(-1, *[1] * (own.dim() - 1)), others, own)

        found = replace(self, states=of(self.states, other.states), outputs=of(self.outputs, other.outputs))
        found.__dict__.update(_kept=self._kept, _nothing=self._nothing)  # a metric takes longer to make
        found.__dict__["_codes"] = of(self._codes, other._codes)
        return found

    @cached_property
    def by_ranks(self) -> RowFigures:
        """These figures by the ranks of outputs, where ranks have the same metric; else themselves."""
        if self.outputs is None or self.outputs.dim() > 2 or not self.outputs.is_floating_point():
            return self
        flat = self.outputs.double().reshape(self.rows, -1)
        flat = flat if flat.shape[1] == 1 else flat.log_softmax(1)
        place = torch.stack([torch.unique(one, return_inverse=True)[1] for one in flat.T], 1)
        ranks = (place / (place.max() + 1) - 0.5).to(self.outputs.dtype).reshape(self.outputs.shape)
        found = replace(self, outputs=ranks)
        return found if found.value() == self.value() else self

    def only(self, rows: np.ndarray) -> RowFigures:
        """Return these figures of some rows, bool [rows]."""
        at = torch.from_numpy(rows)
        return replace(
            self,
            rows=int(at.sum()),
            states=None if self.states is None else self.states[at],
            outputs=None if self.outputs is None else self.outputs[at],
            y=None if self.y is None else self.y[at],
        )

    @cached_property
    def _kept(self) -> Metric:
        """A metric that is made once: some take longer to make than to compute."""
        return _metric(self.task)

    @cached_property
    def _codes(self) -> Tensor | None:
        """What an area under a curve needs of each row, [rows, ...], so that no draw counts rows anew; None
        for other metrics."""
        if self.outputs is None or self.y is None:
            return None
        update_metrics([metric := self._empty_metric()], self.task, self.outputs, self.y)
        codes = torch.cat(found) if (found := getattr(metric, "single", None)) else None
        return codes if codes is not None and len(codes) == self.rows else None

    def _keeps(self, codes: Tensor) -> bool:
        """Have the kept metric be that of such codes; return False where it takes fewer."""
        kept: Any = self._kept  # such as has codes
        kept.keep([codes])
        return kept.single is not None

    @cached_property
    def _nothing(self) -> dict[str, Tensor] | None:
        if not summable(self._kept):
            return None
        return {name: state.detach().clone() for name, state in read_states(self._kept).items()}

    def _empty_metric(self) -> Metric:
        """Return the metric without any row."""
        if self._nothing is None:
            return _metric(self.task)
        write_states(self._kept, {name: state.clone() for name, state in self._nothing.items()})
        return self._kept

    @cached_property
    def counting(self) -> np.ndarray:
        """Which rows the metric counts, bool [rows]: Dice leaves out those without a target."""
        if self.states is None or not hasattr(self._kept, "counted"):
            return np.ones(self.rows, bool)
        found = np.zeros(self.rows, bool)
        for row, states in enumerate(self.states):
            metric = self._empty_metric()
            _put(metric, states)
            found[row] = int(getattr(metric, "counted", 1)) > 0
        return found

    @property
    def counted(self) -> int:
        """How many rows the metric counts."""
        return int(self.counting.sum())

    @property
    def labels(self) -> dict[int, int] | None:
        """How many rows have each class that some have; None where a row has no single one."""
        if not self.task.choices or self.y is None or self.y.numel() != self.rows:
            return None
        found = np.unique(self.y.long().numpy(), return_counts=True)
        return dict(zip(*(one.tolist() for one in found), strict=True))

    @property
    def right(self) -> np.ndarray | None:
        """Whether the answer to each row is right, bool [rows]; None if rows have no single answer."""
        if self.states is None or list(read_states(self._kept)) != ["right", "answers"]:
            return None
        if not bool((self.states[:, 1] == 1).all()):
            return None
        return self.states[:, 0].numpy() > 0


@torch.no_grad()
def figures_of_rows(trained: Trained, model: FlatModel, split: Split) -> RowFigures:
    """Return what a model says of the rows of a split.

    Args:
        trained: The model's run.

    Raises:
        InputError: the metric needs all answers at once, and they are of unequal lengths.
    """
    task, size = trained.algorithm.task, trained.job.evaluate.batch_size
    batches = Batches(split, trained.spec.features, model.device)
    model.module.eval()
    metric = _metric(task)
    numbers = sum(state.numel() for state in read_states(metric).values()) if summable(metric) else 0
    act = _states_of if 0 < numbers <= MOST_STATES else _answers_of
    return as_fits(model, size, partial(act, model, task, batches))


def _states_of(model: FlatModel, task: Task, batches: Batches, size: int) -> RowFigures:
    """Return the states of each row."""
    metric, found, aims = _metric(task), [], []
    empty = _flat(metric)
    for x, y in batches.in_order(size):
        outputs = task.outputs(model.module, x).cpu()
        aims += [y.cpu()] if isinstance(y, Tensor) else []
        for row in range(rows(y)):
            _put(metric, empty)
            update_metrics([metric], task, outputs[row : row + 1], _row(y, row))
            found.append(_flat(metric))
    return RowFigures(task, len(found), torch.stack(found), y=torch.cat(aims) if aims else None)


def _answers_of(model: FlatModel, task: Task, batches: Batches, size: int) -> RowFigures:
    """Return all answers and targets."""
    each = [(task.outputs(model.module, x).cpu(), y) for x, y in batches.in_order(size)]
    alike = {(tuple(outputs.shape[1:]), isinstance(y, Tensor)) for outputs, y in each}
    if len(alike) > 1 or not all(isinstance(y, Tensor) for _, y in each):
        name = task.main_metric.name
        what = f"[task] {name}: needs all answers at once, and rows have unequal numbers of them"
        raise InputError(f"{what}; name another metric by [task] main")
    outputs, y = torch.cat([one for one, _ in each]), torch.cat([y.cpu() for _, y in each])
    return RowFigures(task, len(y), outputs=outputs, y=y)


def _metric(task: Task) -> Metric:
    return task.metrics()[task.main_metric.name]


def _row(y: Any, row: int) -> Any:
    if isinstance(y, dict):
        return {name: one[row : row + 1].cpu() for name, one in y.items()}
    return y[row : row + 1].cpu()


def _flat(metric: Metric) -> Tensor:
    states = read_states(metric).values()
    return torch.cat([state.detach().cpu().double().reshape(-1) for state in states])


def _put(metric: Metric, flat: Tensor) -> None:
    """Put states into a metric, given one after another in one vector."""
    states, begin = {}, 0
    for name, state in read_states(metric).items():
        part = flat[begin : begin + state.numel()].reshape(state.shape)
        whole = part if state.is_floating_point() else part.round()
        states[name], begin = whole.to(state.dtype).clone(), begin + state.numel()
    write_states(metric, states)
