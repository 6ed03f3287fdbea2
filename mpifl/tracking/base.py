"""What an observer is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from mpifl.run import Job, number

Record: TypeAlias = dict[str, Any]
"""One round as it stands in `metrics.jsonl`."""


JUDGED_BY = ("test_accuracy", "silo_accuracy_weighted")
"""The accuracies that a target may be for, the first that a round has: on the test set, on all that silos hold out."""
HELD_OUT = "what silos hold out"


def judged(record: Record) -> tuple[str, float] | None:
    """Return the accuracy of a round that a target is for, by name; None where it was not scored."""
    for name in JUDGED_BY:
        if (value := number(record, name)) is not None:
            return name, value
    return None


class Observer:
    """Told of a run as it goes, on the server's rank; by itself it reports nothing.

    An observer may only report. If one raises, a line says so, and training goes on without it.

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

    def round(self, record: Record) -> None:
        """Hear what a round brought."""

    def note(self, text: str) -> None:
        """Hear a line that the user should see."""

    def end(self) -> None:
        """Hear that the run is over, whatever its end."""
