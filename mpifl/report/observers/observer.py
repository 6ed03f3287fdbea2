"""What an observer is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mpifl.common import one_line
from mpifl.learning.metrics import MetricInfo
from mpifl.run.folder import number

if TYPE_CHECKING:  # what reads runs needs no model
    from mpifl.run.job import Job

Record: TypeAlias = dict[str, Any]
"""One round as it stands in `metrics.jsonl`."""


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
