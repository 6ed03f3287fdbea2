"""Metrics on the examples of all silos: silos send states, and the metric is computed from their sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from mpifl.learning.metrics.metric import Metric
from mpifl.learning.metrics.metric_states import computed, read_states, summable, write_states
from mpifl.learning.metrics.told_answers import MOST_CLASSES, MOST_COLUMNS
from mpifl.learning.tasks import Task

COUNTS = "metric counts"
"""The name of one vector with all whole numbers of the states."""
NO_SINGLE: Mapping[int, Tensor] = MappingProxyType({})
FEW = 16
"""A state of floats with at most this many numbers is sent as one vector for each number; a larger state is
one vector."""


def pack_states(metrics: Mapping[str, Metric]) -> dict[str, Tensor]:
    """Return the states of all summable metrics as flat float64 vectors on the CPU, by name.

    They are moved to the CPU because only some follow the outputs to a device, and all are small.
    """
    states = _states(metrics)
    counts = [state for state in states.values() if not state.is_floating_point()]
    flat = [_flat(state) for state in counts]
    vectors = {COUNTS: torch.cat(flat) if len(flat) > 1 else flat[0]} if flat else {}
    return vectors | {name: part.double() for name, part in _parts(states).items()}


def state_lengths(task: Task) -> dict[str, int]:
    """Return the length of each vector of `pack_states` for the task's metrics."""
    return {name: len(vector) for name, vector in pack_states(task.metrics()).items()}


def single_scores(metrics: Mapping[str, Metric]) -> dict[int, Tensor]:
    """Return the codes of the single probabilities that metrics know of all their examples, by the number of
    columns C: int32 [n, C] each, on the CPU."""
    found: dict[int, Tensor] = {}
    for metric in metrics.values():
        if single := getattr(metric, "single", None):
            found.setdefault(single[0].shape[1], torch.cat(single).cpu())
    return found


def joined(parts: Sequence[tuple[int, Mapping[int, Tensor]]]) -> dict[int, Tensor]:
    """Return the single scores of several sets of examples, of each its number of examples and its own
    scores; none where a set does not know them."""
    known = [single for examples, single in parts if examples]
    every = set[int]().union(*known)
    return {c: torch.cat([one[c] for one in known]) for c in sorted(every) if all(c in one for one in known)}


def pooled(
    task: Task, sums: Mapping[str, Tensor], single: Mapping[int, Tensor] = NO_SINGLE
) -> dict[str, float]:
    """Return each metric on all silos' examples, given the sums of the vectors of `pack_states`.

    Metrics whose states do not add up, and undefined metrics, are left out. With their single scores, as
    `single_scores` returns them, areas under curves are those of single examples. So it is in the functions
    below.
    """
    found = {name: computed(metric) for name, metric in _filled(task, sums, single).items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def certainty(
    task: Task, sums: Mapping[str, Tensor], single: Mapping[int, Tensor] = NO_SINGLE
) -> dict[str, dict[str, float]]:
    """Return what is known of the chance in metrics' values, given the sums of the vectors of `pack_states`.

    Returns:
        By metric: `low` and `high`, its 95 % interval, and `within`, how far the value may be from that of
        all single examples. What is not known is left out.
    """
    found: dict[str, dict[str, float]] = {}
    for name, metric in _filled(task, sums, single).items():
        low, high = getattr(metric, "interval", (math.nan, math.nan))
        known = {"low": low, "high": high, "within": getattr(metric, "within", math.nan)}
        found[name] = {key: value for key, value in known.items() if math.isfinite(value)}
    return {name: known for name, known in found.items() if known}


def counted(task: Task, sums: Mapping[str, Tensor], examples: int) -> dict[str, int]:
    """Return how many examples each metric counts that leaves out some, given the sums of the vectors of
    `pack_states` and how many examples there are."""
    metrics = _filled(task, sums)
    found = {name: getattr(metric, "counted", examples) for name, metric in metrics.items()}
    return {name: count for name, count in found.items() if count < examples}


def answers_told(
    task: Task, sums: Mapping[str, Tensor], single: Mapping[int, Tensor] = NO_SINGLE
) -> dict[str, Any]:
    """Return what metrics tell of a model's answers, as `ToldAnswers` reads it, given the sums of the vectors
    of `pack_states`."""
    metrics: list[Any] = list(_filled(task, sums, single).values())
    sure = certainty(task, sums, single)
    ends = {name: [of["low"], of["high"]] for name, of in sure.items() if "low" in of}
    counted = [one for one in metrics if hasattr(one, "ranked") and one.counts.any()]
    ranking: Any = counted[-1] if counted else None
    columns = ranking.ranked() if ranking else []
    tables = (getattr(one, name, None) for one in metrics for name in ("confusion", "confmat"))
    confusion: Any = next((of for of in tables if isinstance(of, Tensor) and of.dim() == 2), None)
    if confusion is None and len(columns) == 1 and task.choices == 2:
        confusion = columns[0].confusion(task.cut_off)
    labels = [int(one.yes.sum()) for one in columns] if task.choices == len(columns) else []
    labels = labels if confusion is None else confusion.sum(1).tolist()
    found: dict[str, Any] = {"intervals": ends} if ends else {}
    within = {name: of["within"] for name, of in sure.items() if of.get("within")}
    found |= {"within": within} if within else {}
    if len(columns) > MOST_COLUMNS:
        columns = [columns[0].with_others(columns[1:])]
    elif columns:
        found["areas"] = [_known(one.area()) for one in columns]
        found["precisions"] = [_known(one.precision()) for one in columns]
    found |= {"commonest": max(labels) / sum(labels)} if task.choices and sum(labels) else {}
    found |= {"columns": [one.told() for one in columns]} if ranking else {}
    few = confusion is not None and len(confusion) <= MOST_CLASSES
    found |= {"confusion": confusion.long().tolist()} if few else {}
    return found | ({"threshold": task.cut_off} if few and task.cut_off != 0.5 else {})


def _known(value: float) -> float | None:
    """Return a value, None if it is not defined."""
    return value if math.isfinite(value) else None


def _filled(
    task: Task, sums: Mapping[str, Tensor], single: Mapping[int, Tensor] = NO_SINGLE
) -> dict[str, Metric]:
    """Return the metrics whose states add up, with these sums; none if sums are missing."""
    metrics = task.metrics()
    if any(name not in sums for name in pack_states(metrics)):
        return {}
    fill(metrics, sums, single)
    return {name: metric for name, metric in metrics.items() if summable(metric)}


def real_states(task: Task) -> dict[str, Tensor]:
    """Return the vectors of `pack_states` with floats, for no examples, in the dtypes of the states."""
    return _parts(_states(task.metrics()))


def fill(
    metrics: Mapping[str, Metric], sums: Mapping[str, Tensor], single: Mapping[int, Tensor] = NO_SINGLE
) -> None:
    """Put sums of the vectors of `pack_states` into new metrics whose states add up; they may be sparse.

    Single scores are put into the metrics that keep them.
    """
    states, sums = _states(metrics), {name: of.to_dense() for name, of in sums.items()}
    counts, begin = sums.get(COUNTS), 0
    for name, state in states.items():
        if state.is_floating_point():
            total = torch.cat([sums[part] for part in _parts({name: state})])
        else:
            assert counts is not None
            total, begin = counts[begin : begin + state.numel()], begin + state.numel()
        states[name] = total.cpu().reshape(state.shape).to(state.dtype)
    for name, metric in metrics.items():
        if summable(metric):
            write_states(metric, {key: states[_key(name, key)] for key in read_states(metric)})
        keeps: Any = metric if hasattr(metric, "single") else None
        if keeps and (codes := single.get(len(keeps.counts))) is not None:
            keeps.keep_counted(codes)


def _states(metrics: Mapping[str, Metric]) -> dict[str, Tensor]:
    return {
        _key(name, key): state
        for name, metric in metrics.items()
        if summable(metric)
        for key, state in read_states(metric).items()
    }


def _key(metric: str, state: str) -> str:
    return f"metric {metric}.{state}"


def _parts(states: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the vectors of states with floats.

    The exact sum's grid depends on a vector's largest number. Beside large squares of one column, small ones
    of another column would become 0.
    """
    found: dict[str, Tensor] = {}
    for name, state in states.items():
        flat = state.detach().cpu().reshape(-1)
        if not state.is_floating_point():
            continue
        if 1 < len(flat) <= FEW:
            found |= {f"{name}[{i}]": flat[i : i + 1] for i in range(len(flat))}
        else:
            found[name] = flat
    return found


def _flat(state: Tensor) -> Tensor:
    return state.detach().cpu().double().reshape(-1)
