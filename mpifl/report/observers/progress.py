"""How far a run has come, and the one rule of when it has nothing left to do."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mpifl.learning.metrics import MetricInfo
from mpifl.report.observers.observer import Record, judged, reached
from mpifl.run.folder import number

if TYPE_CHECKING:  # what reads runs needs no model
    from mpifl.run.job import Job


DECIDED_BY = "decided_by"
"""The key of a record for figures of the round before, by which `[evaluate] behind` ends a training."""


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

    def judgement(self, metric: MetricInfo) -> Record:
        """Return the figures by which `at_end` judges this round."""
        names = (*metric.judged_by, "evaluations_since_best")
        return {DECIDED_BY: {name: self.record[name] for name in names if name in self.record}}

    def adding(self, figures: Record) -> Progress:
        """Return the progress with more figures of the last round."""
        return replace(self, record={**self.record, **figures})

    def after_report(self) -> Progress:
        """Return the progress of which the observers have been told."""
        return replace(self, reported=True)

    def finished(self, job: Job, metric: MetricInfo) -> bool:
        """Return whether a run of this job, judged by this metric, has nothing left to train."""
        evaluate = job.evaluate
        ends = at_end(self.round, self.record, job.rounds, evaluate.stops_at, metric, evaluate.patience)
        return bool(ends)


def at_end(
    round: int,
    record: Record,
    rounds: int,
    stops_at: float | None,
    metric: MetricInfo,
    patience: int | None = None,
) -> str:
    """Return in words why a run is at its end, "" if it is not.

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
    told = by if isinstance(by := record.get(DECIDED_BY), dict) else record
    waited = number(told, "evaluations_since_best") or 0
    if round >= rounds:
        return "all rounds are done"
    if reached(told, metric, stops_at):
        return f"the target, {metric.write_briefly(stops_at or 0)}, is reached"
    if patience is not None and waited >= patience:
        return f"no better {metric.name} in {patience} evaluation{'s' * (patience > 1)}"
    return "another round would pass a privacy budget" if number(record, "budget_left") == 0 else ""


def stopped_early(
    records: Sequence[Record],
    rounds: int,
    stops_at: float | None,
    metric: MetricInfo,
    patience: int | None = None,
) -> str:
    """Return at which round a run has stopped early, why, and which round was best; "" if it has not.

    Args:
        rounds, stops_at, metric, patience: As `at_end` has them.
    """
    last = records[-1]
    why = at_end(last["round"], last, rounds, stops_at, metric, patience)
    if not why or last["round"] >= rounds:
        return ""
    said = f"stopped early, after round {last['round']:,} of {rounds:,}: {why}"
    if (best := best_round(records, metric)) is None:
        return "; ".join(filter(None, [said, never_moved(records, metric)]))
    kept = ", and model.safetensors is of it" if number(last, "model_round") == best[0] else ""
    return f"{said}; round {best[0]:,} was best, with {metric.name} {metric.write(best[1])}{kept}"


def best_round(records: Sequence[Record], metric: MetricInfo) -> tuple[int, float] | None:
    """Return the round with the best value of what a run is judged by, and the value; None if none was
    scored, or all are the same."""
    points = _scored(records, metric)
    if not points or never_moved(records, metric):
        return None
    noted, best = number(records[-1], "best_round"), metric.best(value for _, value in points)
    return next((one for one in points if one[0] == noted), None) or next(
        one for one in points if one[1] == best
    )


def never_moved(records: Sequence[Record], metric: MetricInfo) -> str:
    """Say that all rounds have the same value of what a run is judged by; "" if they have not, or one was
    scored."""
    points = _scored(records, metric)
    if len(points) < 2 or len({value for _, value in points}) > 1:
        return ""
    where = f"{metric.name} never moved: {metric.write(points[0][1])} in each of {len(points):,} evaluations"
    return f"{where}, so no round is best, and the model is the last one"


def _scored(records: Sequence[Record], metric: MetricInfo) -> list[tuple[int, float]]:
    """Return the rounds with a value of what a run is judged by, and the values."""
    scored = [(record["round"], *found) for record in records if (found := judged(record, metric))]
    return [(round, value) for round, key, value in scored if key == scored[0][1]]
