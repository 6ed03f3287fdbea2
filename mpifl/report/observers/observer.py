"""What an observer is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mpifl.common import one_line
from mpifl.learning.metrics import MetricInfo
from mpifl.run.folder import number

if TYPE_CHECKING:  # what reads runs needs no model
    from mpifl.run.job import Job

Record: TypeAlias = dict[str, Any]
"""One round as it stands in `metrics.jsonl`."""


DEEP = 3
"""How deep tables of a record lie within each other: figures of a silo in those of the end."""
HELD_OUT = "the silos' held-out examples"
TOGETHER = "all held-out examples"
"""Whose a metric is that is of all examples together, not the mean of silos' metrics."""


def judged(record: Record, metric: MetricInfo) -> tuple[str, float] | None:
    """Return the value of a round's main metric that a target is for,
    and its key; None where it was not scored."""
    for name in metric.judged_by:
        if (value := number(record, name)) is not None:
            return name, value
    return None


def worst_silo(record: Record, metric: MetricInfo) -> str | None:
    """Return the name of the silo that a round's model serves worst, by the main metric."""
    silos = record.get("silos")
    values = {
        name: value
        for name, figures in (silos if isinstance(silos, dict) else {}).items()
        if isinstance(figures, dict) and (value := number(figures, metric.name)) is not None
    }
    worst = metric.worst(values.values(), default=None)
    return next((one_line(name) for name, value in values.items() if value == worst), None)


def reached(record: Record, metric: MetricInfo, target: float | None) -> bool:
    """Return whether a round is at the target or better; False where there is none, or no score."""
    found = judged(record, metric)
    return target is not None and found is not None and metric.reaches(found[1], target)


def numbers(record: Record) -> dict[str, float]:
    """Return every number of a record by its name: of each silo `loss_by_silo/NAME`, of other tables
    `KEY/NAME`. Losses of steps are left out; see `step_points`."""
    silos, tables = record.get("silos"), dict[str, Any]()
    for name, figures in silos.items() if isinstance(silos, dict) else ():
        for key, value in figures.items() if isinstance(figures, dict) else ():
            tables.setdefault(f"{key}_by_silo", {})[name] = value
    rest = {key: value for key, value in record.items() if key not in ("round", "time", "silos", "answers")}
    found = {**rest, **tables}
    for _ in range(DEEP):
        found = {name: value for key, of in found.items() for name, value in _inside(key, of)}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def _inside(key: str, of: Any) -> list[tuple[str, Any]]:
    """Return the entries of a table by `KEY/NAME`, or what is no table by its key."""
    return (
        [(f"{key}/{name}", value) for name, value in of.items()] if isinstance(of, Mapping) else [(key, of)]
    )


def step_points(record: Record) -> list[tuple[float, dict[str, float]]]:
    """Return the losses of steps that a round tells: where in the rounds, and `step_loss/NAME` of silos.

    The steps of a round are evenly spaced within it.
    """
    told = record.get("step_losses")
    losses = {name: of for name, of in told.items() if of} if isinstance(told, dict) else {}
    found: dict[float, dict[str, float]] = {}
    for name, of in losses.items():
        for place, loss in enumerate(of, 1):
            if loss is not None:
                at = record["round"] - 1 + place / len(of)
                found.setdefault(at, {})[f"step_loss/{name}"] = loss
    return sorted(found.items())


class Observer:
    """Told of a run as it goes, on the server's rank; by itself it reports nothing.

    An observer may only report. If one raises, a line says so, and training continues without it.

    Attributes:
        job: The job, with every default filled in.
        folder: The run folder.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self.job = job
        self.folder = folder

    def __str__(self) -> str:
        return type(self).__name__

    def begin(self, round: int, title: str) -> None:
        """Hear that the run starts after `round` rounds done."""

    def before(self, record: Record) -> None:
        """Hear how pretrained weights score before the first round; `round` is 0."""

    def round(self, record: Record) -> None:
        """Hear what a round brought."""

    def note(self, text: str) -> None:
        """Hear a line that the user should see."""

    def end(self) -> None:
        """Hear that the run is over, whatever its end."""
