"""Shares of a score: whoever scores some batches returns a share, and shares add up to the score.

Numbers that rounding affects are kept for each batch, and added up in the order of batches. So a score has
the same bits, however batches are dealt. They are the bits of `scoring.evaluate`, if a metric adds one sum
for each batch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mpifl.data import rows
from mpifl.data.batches import Batches
from mpifl.learning.metrics import (
    COUNTS,
    computed,
    fill,
    joined,
    pack_states,
    real_states,
    single_scores,
    state_lengths,
)
from mpifl.learning.tasks import Task
from mpifl.silo import ALONE, Lanes, Score, Scoring, purely, usable
from mpifl.silo.parameters import FlatModel, Objective, scalar

LOSS, COUNT, OWN, STATES = range(4)
"""Columns of a share: the sum of losses, its divisor, the algorithm's own objective, states of metrics."""


@dataclass(frozen=True)
class ScoreShare:
    """The share of a score for some batches.

    Attributes:
        rows: For each batch the columns above, float64 [batches, 3 + n].
        whole: The whole numbers among the metrics' states, added up over these batches, float64 [m].
        examples: How many examples these batches have.
        counted: The dtype of the divisor of losses.
        single: The probabilities of single examples, as `single_scores` returns them.
    """

    rows: Tensor
    whole: Tensor
    examples: int
    counted: torch.dtype
    single: Mapping[int, Tensor]


def width_of(task: Task) -> tuple[int, int]:
    """Return how many columns and how many whole numbers a share of a task has."""
    lengths = state_lengths(task)
    whole = lengths.pop(COUNTS, 0)
    return STATES + sum(lengths.values()), whole


@torch.no_grad()
def share_of(
    model: FlatModel,
    task: Task,
    batches: Batches,
    size: int,
    numbers: Sequence[int],
    own_objective: Objective | None = None,
    lanes: Lanes = ALONE,
) -> ScoreShare:
    """Score the model with its present parameters on batches of `size` examples, only those in `numbers`."""
    given = model, task, batches, size, numbers, own_objective
    return purely(model, lanes, functools.partial(_shared, *given))


def _shared(
    model: FlatModel,
    task: Task,
    batches: Batches,
    size: int,
    numbers: Sequence[int],
    own_objective: Objective | None,
    lanes: Lanes,
) -> ScoreShare:
    model.module.eval()
    width, wholes = width_of(task)
    scoring, whole = Scoring(task, model.device), torch.zeros(wholes, dtype=torch.float64)
    counted, examples, found, singles = torch.int64, 0, [], []

    def of(module: nn.Module, batch: tuple[Any, Any]) -> tuple[Any, Tensor | float, Any]:
        own = 0.0 if own_objective is None else scalar(own_objective(module, *batch)).double()
        if own_objective is not None and model.buffers.at_scoring:
            model.buffers.restore()
        return task.outputs(module, batch[0]), own, batch[1]

    given = batches.in_order(size, numbers)
    for outputs, own, y in usable(lanes, batches, size).each(model.module, of, given):
        scoring.add(outputs, y)
        loss, count, states, single = scoring.take()
        if isinstance(count, Tensor):
            counted = torch.promote_types(counted, count.dtype)
        if COUNTS in states:
            whole += states.pop(COUNTS)
        ahead = torch.tensor([float(loss), float(count), float(own)], dtype=torch.float64)
        found.append(torch.cat([ahead, *states.values()]))
        examples += rows(y)
        singles.append((rows(y), single))
    table = torch.stack(found) if found else torch.zeros(0, width, dtype=torch.float64)
    return ScoreShare(table, whole, examples, counted, joined(singles))


def score_of(
    task: Task,
    shares: Collection[tuple[Sequence[int], ScoreShare]],
    sizes: Sequence[int],
    *,
    own: bool = False,
) -> Score:
    """Return the score of all batches.

    Args:
        task: What is learned.
        shares: The shares, each with the numbers of its batches; together they have each batch once.
        sizes: How many examples each batch has.
        own: Whether the loss is the mean of the algorithm's own objective.
    """
    loss, mean = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    count: Tensor | int = 0
    sums = real_states(task)
    for number, (row, counted) in enumerate(_in_order(shares, len(sizes))):
        loss += row[LOSS]
        count = count + row[COUNT].to(counted)
        mean.add_(row[OWN], alpha=sizes[number])
        states = torch.split(row[STATES:], [len(state) for state in sums.values()])
        sums = {
            name: state + one.to(state.dtype) for (name, state), one in zip(sums.items(), states, strict=True)
        }
    metrics = task.metrics()
    fill(metrics, {**sums, **_whole(shares)}, joined([(one.examples, one.single) for _, one in shares]))
    values = {name: computed(metric) for name, metric in metrics.items()}
    usual = float(loss) / float(count) if count else math.nan
    loss_of_all, vectors = float(mean) / sum(sizes) if own else usual, pack_states(metrics)
    return Score(loss_of_all, values, sum(sizes), vectors, single_scores(metrics))


def _in_order(
    shares: Collection[tuple[Sequence[int], ScoreShare]], batches: int
) -> Iterator[tuple[Tensor, torch.dtype]]:
    """Yield the row of each batch, and the dtype of its divisor of losses."""
    at = {number: (share, nth) for numbers, share in shares for nth, number in enumerate(numbers)}
    for number in range(batches):
        share, nth = at[number]
        yield share.rows[nth], share.counted


def _whole(shares: Collection[tuple[Sequence[int], ScoreShare]]) -> Mapping[str, Tensor]:
    whole = torch.stack([share.whole for _, share in shares]).sum(0)
    return {COUNTS: whole} if len(whole) else {}
