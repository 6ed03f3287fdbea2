"""How far a run has come, and the one rule of when it has nothing left to do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mpifl.run import Job
from mpifl.tracking.base import Record, judged


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Attributes:
        round: Rounds done.
        record: What is known of the last of them, by the names in `metrics.jsonl`.
        reported: Whether the observers have been told of it.
    """

    round: int = 0
    record: Record = field(default_factory=dict)
    reported: bool = True

    def next(self, scalars: Mapping[str, Any]) -> Progress:
        """Return the progress after one more round, which brought these figures."""
        round = self.round + 1
        return Progress(round, {"round": round, "time": time.time(), **scalars}, reported=False)

    def adding(self, figures: Record) -> Progress:
        """Return the progress with more figures of the last round."""
        return replace(self, record={**self.record, **figures})

    def after_report(self) -> Progress:
        """Return the progress of which the observers have been told."""
        return replace(self, reported=True)

    def finished(self, job: Job) -> bool:
        """Return whether a run of this job has nothing left to train."""
        return at_end(self.round, self.record, job.rounds, job.evaluate.stop_at)


def at_end(round: int, record: Record, rounds: int, stop_at: float | None) -> bool:
    """Return whether a run has done all its rounds, or has reached the accuracy at which it stops.

    Args:
        round: Rounds done.
        record: The last of them.
        rounds: The rounds that the job asks for.
        stop_at: The accuracy at which the job stops, if it does; see `judged`.
    """
    found = judged(record)
    reached = stop_at is not None and found is not None and found[1] >= stop_at
    return reached or round >= rounds
