"""Metrics of the examples of all silos: their states travel, are added up, and are computed once."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from mpifl.learning.metrics.metric import Metric
from mpifl.learning.metrics.metric_states import computed, read_states, summable, write_states
from mpifl.learning.tasks import Task

COUNTS = "metric counts"
"""The vector of all whole numbers among the states; each other number is a vector by itself."""
FEW = 16
"""The most numbers of a state that are vectors by themselves; a larger state is one vector."""


def pack_states(metrics: Mapping[str, Metric]) -> dict[str, Tensor]:
    """Return the states of all metrics whose states add up, as flat float64 vectors on the CPU, by name.

    Only some follow the outputs to a device, and all are small.
    """
    states = _states(metrics)
    counts = [state for state in states.values() if not state.is_floating_point()]
    vectors = {COUNTS: torch.cat([_flat(state) for state in counts])} if counts else {}
    return vectors | {name: part.double() for name, part in _parts(states).items()}


def state_lengths(task: Task) -> dict[str, int]:
    """Return the length of each vector that `pack_states` makes of the task's metrics."""
    return {name: len(vector) for name, vector in pack_states(task.metrics()).items()}


def pooled(task: Task, sums: Mapping[str, Tensor]) -> dict[str, float]:
    """Return each metric of all silos' examples together, given the sums of the vectors of `pack_states`.

    Metrics whose states do not add up, and those that are undefined, are left out.
    """
    metrics = task.metrics()
    if any(name not in sums for name in pack_states(metrics)):
        return {}
    fill(metrics, sums)
    found = {name: computed(metric) for name, metric in metrics.items() if summable(metric)}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def real_states(task: Task) -> dict[str, Tensor]:
    """Return those vectors of `pack_states` that are no whole numbers, in the dtypes of the states: each of
    no examples."""
    return _parts(_states(task.metrics()))


def fill(metrics: Mapping[str, Metric], sums: Mapping[str, Tensor]) -> None:
    """Put sums of the vectors of `pack_states` into new metrics, those whose states add up."""
    states = _states(metrics)
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
    """Return the vectors of states that are no whole numbers.

    A sum's grid goes by the largest number of a vector: beside one column's squares another's would be 0.
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
