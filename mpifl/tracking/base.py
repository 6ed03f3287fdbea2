"""What an observer is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from mpifl.run import number
from mpifl.tasks import MetricInfo

Record: TypeAlias = dict[str, Any]
"""One round as it stands in `metrics.jsonl`."""


HELD_OUT = "what silos hold out"


def judged(record: Record, metric: MetricInfo) -> tuple[str, float] | None:
    """Return the value of a round's main metric that a target is for, and its key; None where it was not scored."""
    for name in metric.judged_by:
        if (value := number(record, name)) is not None:
            return name, value
    return None


def reached(record: Record, metric: MetricInfo, target: float | None) -> bool:
    """Return whether a round is at the target or better; False where there is none, or no score."""
    found = judged(record, metric)
    return target is not None and found is not None and metric.reaches(found[1], target)


class Observer:
    """Told of a run as it goes; by itself it reports nothing."""

    def begin(self, round: int, title: str) -> None:
        """Hear that the run starts after `round` rounds done."""

    def round(self, record: Record) -> None:
        """Hear what a round brought."""

    def note(self, text: str) -> None:
        """Hear a line that the user should see."""

    def end(self) -> None:
        """Hear that the run is over, whatever its end."""


def spread(name: str, values: list[float], worst: Callable[..., float], best: Callable[..., float]) -> Record:
    """Summarise a figure over silos, each counting alike: mean, worst, best, deviation, mean of the worst tenth."""
    if not values:
        return {}
    figures = torch.tensor(values, dtype=torch.float64)
    tenth = torch.topk(figures, max(len(values) // 10, 1), largest=worst is max).values
    return {
        f"{name}_mean": float(figures.mean()),
        f"{name}_worst": worst(values),
        f"{name}_best": best(values),
        f"{name}_std": float(figures.std(correction=0)),
        f"{name}_worst10": float(tenth.mean()),
    }
