"""States of metrics that add up over silos, so that the metric of all examples can be computed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from mpifl.learning.metrics.metric import Metric
from mpifl.learning.tasks import Task


def summable(metric: Metric) -> bool:
    """Return whether all of a metric's states add up. Then their sums over silos are the states for all
    examples.

    torchmetrics' reductions tell this. A plain metric names such tensors in `summed`.
    """
    return bool(_names(metric))


def read_states(metric: Metric) -> dict[str, Tensor]:
    """Return the states of a summable metric by name; shapes and dtypes are those of a new metric."""
    return {name: getattr(metric, name) for name in _names(metric)}


def write_states(metric: Metric, states: Mapping[str, Tensor]) -> None:
    """Put states into a new metric, as if it had been updated with all their examples.

    Of examples that are only counted, a metric that keeps `single` scores knows none.

    Raises:
        ValueError: the states are not those of this metric.
    """
    own = read_states(metric)
    if [(name, v.shape, v.dtype) for name, v in sorted(states.items())] != [
        (name, v.shape, v.dtype) for name, v in sorted(own.items())
    ]:
        raise ValueError(f"{sorted(states)}: are not the states of {type(metric).__name__}, {sorted(own)}")
    for name, state in states.items():
        setattr(metric, name, state.to(own[name].device))
    if hasattr(metric, "single"):
        metric.single = None if any(bool(state.any()) for state in states.values()) else []
    if hasattr(metric, "_reductions"):  # torchmetrics' own flags: updated, not computed yet
        vars(metric).update(_update_count=1, _computed=None)


def computed(metric: Metric) -> float:
    """Return a metric's value, NaN if it is undefined; a library's warnings are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(metric.compute())


def update_metrics(metrics: Iterable[Metric], task: Task, outputs: Tensor, y: Tensor) -> None:
    """Add a batch to metrics: a model's outputs, and the targets. Perhaps no target of it counts."""
    scored = task.scored(outputs, y)
    for metric in metrics if len(scored[1]) else ():
        whole = getattr(metric, "by_example", False)
        metric.update(*((task.predict(outputs), y) if whole else scored))


def _names(metric: Any) -> list[str]:
    """Return the names of a metric's states if they all add up, else none."""
    if not hasattr(metric, "_reductions"):
        return list(getattr(metric, "summed", ()))
    from torchmetrics.utilities.data import dim_zero_sum

    adds_up = all(kind is dim_zero_sum for kind in metric._reductions.values())
    tensors = all(isinstance(getattr(metric, name), Tensor) for name in metric._reductions)
    return list(metric._reductions) if adds_up and tensors else []
