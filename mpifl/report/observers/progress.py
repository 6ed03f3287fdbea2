"""How far a run has come, and the one rule of when it has nothing left to do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mpifl.learning.metrics import MetricInfo
from mpifl.report.observers.observer import Record, reached
from mpifl.run.folder import number

if TYPE_CHECKING:  # what reads runs needs no model
    from mpifl.run.job import Job


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

    def finished(self, job: Job, metric: MetricInfo) -> bool:
        """Return whether a run of this job, judged by this metric, has nothing left to train."""
        evaluate = job.evaluate
        return at_end(self.round, self.record, job.rounds, evaluate.stops_at, metric, evaluate.patience)


def at_end(
    round: int,
    record: Record,
    rounds: int,
    stops_at: float | None,
    metric: MetricInfo,
    patience: int | None = None,
) -> bool:
    """Return whether a run is at its end.

    It has done all its rounds, has reached the value at which it stops, has waited for a better one as long
    as it was to, or has no privacy budget left for another round.

    Args:
        round: Rounds done.
        record: The last of them.
        rounds: The rounds that the job asks for.
        stops_at: The value of the metric at which the job stops, if it does.
        metric: The main metric of the job's task.
        patience: The evaluations without a better one after which the job stops, if it does.
    """
    spent = number(record, "budget_left") == 0
    waited = number(record, "evaluations_since_best") or 0
    given_up = patience is not None and waited >= patience
    return round >= rounds or given_up or spent or reached(record, metric, stops_at)
