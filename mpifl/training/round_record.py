"""A round's record, from the algorithm's figures to the observers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, Names
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
        self._add(t.job.local.rates(self.progress.round - 1))
        self._add(t.metrics.costs_of_round(self.began))
        self._add(t.metrics.evaluate_if_due(self.progress.record, later=later))
        if not t.metrics.awaits:
            self._judge()
        if ended := self.progress.finished(t.job, t.metric):
            self._add(scored_at_end(t))
        self._add(t.metrics.close_round(self.progress.record))
        if not ended and self.progress.finished(t.job, t.metric):  # by a budget, which is known by now
            self._score_last()
            self._add(scored_at_end(t))
        if not t.metrics.awaits:
            return self._report()
        if t.best.keeps:
            self._model = {name: of.clone() for name, of in t.server.shared_state.items()}
        self.progress = self.progress.after_report()

    def spend(self) -> Progress:
        """Return the progress of a training that ends here, since silos have no budget for another round.

        The model is scored, unless the round was."""
        self._add({"budget_left": 0})
        self._score_last()
        return self.progress

    def _score_last(self) -> None:
        """Have the score of the round's model, though none was due."""
        if self._t.metrics.awaits:
            self._add(self._t.metrics.awaited())
        elif "seconds_evaluation" not in self.progress.record:
            self._add(self._t.metrics.evaluate_if_due(self.progress.record, last=True))
        self._judge()

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

    Where a score at silos costs something, the server's test set alone is scored, and a line says so.
    """
    job, model = t.job, t.job.model
    pretrained = model.weights is not None or "path" in model.arguments
    if job.needs_all or not pretrained:
        return
    why = _not_at_silos(t)
    found = t.metrics.evaluate_at_server() if why else t.metrics.evaluate_if_due()
    if why and t.metrics.scores_silos:
        what = f"pretrained weights are not scored at silos before round 1: {why}"
        t.observers.note(f"{what}; `mpifl evaluate RUN --initial` scores them later")
    record: Record = {"round": 0, **found}
    t.exchange.begin_ledger()
    if found:
        note_before(t.out, record)
        t.observers.before(record)


def _not_at_silos(t: RunTraining) -> str:
    """Return why pretrained weights are not scored at silos before the first round; "" where they are."""
    if t.algorithm.own_models:
        return "silos have models of their own"
    if t.job.privacy is not None:
        return "it would be one score more without noise"
    return "it would be one masked sum more" if t.job.secure else ""


def reportable(brought: Any, algorithm: Algorithm, names: Names) -> Record:
    """Return the figures from an algorithm's round, after a check; keys of silos become their names.

    Raises:
        InputError: the round did not return a dict.
    """
    if isinstance(brought, dict):
        return {name: _named(value, names) for name, value in brought.items() if value != {}}
    what = (
        f"{type(algorithm).__name__}.round returned "
        f"{'None' if brought is None else f'a {type(brought).__name__}'}"
    )
    raise InputError(f"{what}; have it return what is to be reported, such as mean.scalars")


def _named(value: Any, names: Names) -> Any:
    return {names[k]: of for k, of in value.items()} if isinstance(value, Mapping) else value
