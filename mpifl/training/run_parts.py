"""The parts of a training on the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpifl.algorithms import Algorithm, Server
from mpifl.data.shards import AnySpec
from mpifl.exchange import Federation
from mpifl.learning.metrics import MetricInfo
from mpifl.report.observers import Observers, Progress, Record
from mpifl.run.job import Job
from mpifl.training.build import Built
from mpifl.training.checkpointing import CheckpointManager
from mpifl.training.draw_cohort import Selector, round_clock
from mpifl.training.early_stopping import BestModel
from mpifl.training.recovery import Recovery
from mpifl.training.round_metrics import MetricsCollector
from mpifl.training.wing import Wing, of_one


@dataclass(frozen=True)
class RunTraining:
    """The parts of one training on the server.

    Attributes:
        job, spec, algorithm: The job, the federation, and the algorithm for it.
        out: The run folder.
        server: The state of the training.
        exchange: Sends requests to the silos.
        observers: Get each round's record, and notes for the user.
        recovery: Keeps the training going when ranks die.
        checkpoints: Writes and commits checkpoints.
        metrics: The figures of each round.
        selector: Chooses the silos of each round.
        best: Records which round's model was best.
        wings: The wings that the job asks for.
    """

    job: Job
    spec: AnySpec
    algorithm: Algorithm
    out: Path
    server: Server
    exchange: Federation
    observers: Observers
    recovery: Recovery
    checkpoints: CheckpointManager
    metrics: MetricsCollector
    selector: Selector
    best: BestModel
    wings: Sequence[Wing]

    @property
    def metric(self) -> MetricInfo:
        """The task's main metric, which judges the training."""
        return self.algorithm.task.main_metric


def assemble(built: Built, out: Path) -> RunTraining:
    """Return the parts of a training on the server."""
    job, spec, server, exchange, wings = built.job, built.spec, built.server, built.exchange, built.wings
    algorithm = job.build_algorithm().for_federation(spec)
    observers = Observers()
    exchange.listen(observers.note)
    sizes = [entry.examples["train"] for entry in spec.silos]
    recovery = Recovery(exchange, server, out, sizes, observers.note, algorithm)
    checkpoints = CheckpointManager(out, job.checkpoint, server, recovery, observers)
    metrics = MetricsCollector(job, spec, algorithm, server, recovery, note=observers.note, wings=wings)
    coins = of_one(wings, lambda wing: wing.coins(len(spec.silos), out), "the draw of silos")
    for wing in wings:
        wing.begin(server, exchange, observers.note)
    return RunTraining(
        job=job,
        spec=spec,
        algorithm=algorithm,
        out=out,
        server=server,
        exchange=exchange,
        observers=observers,
        recovery=recovery,
        checkpoints=checkpoints,
        metrics=metrics,
        selector=Selector(job.cohort, sizes, server, coins, round_clock(algorithm, spec, job.seed)),
        best=BestModel(job.evaluate, algorithm, server, out),
        wings=wings,
    )


class LastRound:
    """The last round that is trained, until the observers have its record: at once, or by `[evaluate] behind`
    when the next round is trained.

    Attributes:
        progress: The round; the next one may begin if it is `reported`, or if only the score of its model is
            missing.
        began: When the round that is being trained began, by `time.perf_counter`.
    """

    def __init__(self, t: RunTraining, progress: Progress, on_round: Callable[[Record], bool]) -> None:
        self._t, self.progress, self._on_round = t, progress, on_round
        self._stop, self.began = False, 0.0
        self._model: dict[str, Any] = {}

    @property
    def ends(self) -> bool:
        """Whether the training is at its end, as far as is known, or an observer has ended it."""
        return self._stop or self.progress.finished(self._t.job, self._t.metric)

    def next(self, scalars: Record) -> None:
        """Take the next round's place, whose algorithm brought these figures."""
        before = self.progress.judgement(self._t.metric) if self._t.job.evaluate.behind else {}
        self.progress = self.progress.next({**scalars, **before})

    def close(self) -> None:
        """Score the round's model, and report the round. By `[evaluate] behind` leave the score and the
        report to `complete`, if another round follows before a checkpoint."""
        t = self._t
        later = t.job.evaluate.behind and not (self.ends or t.checkpoints.due)
        self._add(t.metrics.costs_of_round(self.began))
        self._add(t.metrics.evaluate_if_due(self.progress.record, later=later))
        if not t.metrics.awaits:
            self._judge()
        if self.progress.finished(t.job, t.metric):
            self._add(scored_at_end(t))
        self._add(t.metrics.close_round(self.progress.record))
        if not t.metrics.awaits:
            return self._report()
        if t.best.keeps:
            self._model = {name: of.clone() for name, of in t.server.shared_state.items()}
        self.progress = self.progress.after_report()

    def complete(self) -> None:
        """Wait for the score that `close` has left, if it has, and report the round."""
        if self._t.metrics.awaits:
            since = time.perf_counter()
            self._add(self._t.metrics.awaited())
            waited = time.perf_counter() - since + self.progress.record["seconds_evaluation"]
            self._add({"seconds_evaluation": waited})
            self._judge()
            self._report()
            self.began += time.perf_counter() - since

    def _add(self, figures: Record) -> None:
        self.progress = self.progress.adding(figures)

    def _judge(self) -> None:
        self._add(self._t.best.observe(self.progress.record, self._model))
        self._model = {}

    def _report(self) -> None:
        """Report the round to the observers."""
        t = self._t
        if seconds := t.checkpoints.take_seconds():
            self._add({"seconds_checkpoint": seconds})
        for name in ("model", "last"):  # from an earlier end, outdated by this round
            (t.out / f"{name}.safetensors").unlink(missing_ok=True)
        t.observers.round(self.progress.record)
        self.progress = self.progress.after_report()
        self._stop = self._on_round(self.progress.record)


def scored_at_end(t: RunTraining) -> Record:
    """Score the run's model on test sets, if rounds were scored on valid splits only; tell its round if it is
    the best one."""
    with t.best.lent() as kept:
        return t.metrics.evaluate_at_end(kept) | ({"model_round": kept} if kept else {})
