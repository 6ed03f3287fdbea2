"""A round's record, from the algorithm's figures to the observers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mpifl.report.observers import Progress, Record
from mpifl.run.folder import note_before
from mpifl.training.start import RunTraining


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


def score_before(t: RunTraining) -> None:
    """Score pretrained weights before the first round, and report the figures as those of round 0.

    Silos with models of their own have none yet. Under masks and privacy each score is one release more.
    """
    job, model = t.job, t.job.model
    pretrained = model.weights is not None or "path" in model.arguments
    apart = job.needs_all or job.secure or job.privacy is not None or t.algorithm.own_models
    if apart or not pretrained:
        return
    record: Record = {"round": 0, **t.metrics.evaluate_if_due()}
    t.exchange.begin_ledger()
    note_before(t.out, record)
    t.observers.before(record)
