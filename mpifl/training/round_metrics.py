"""The figures of a round: the algorithm's results, the model's scores, and the costs."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from mpifl.algorithms import Algorithm, Server, Work
from mpifl.common import RoundLost
from mpifl.common.machine import EnergyMeter, resident_mb
from mpifl.data.shards import AnySpec
from mpifl.learning.metrics import answers_told, pooled, state_lengths
from mpifl.learning.tasks import TaskFacts
from mpifl.report.judging import Suspicion
from mpifl.report.observers import Record
from mpifl.run.folder import read_metrics
from mpifl.run.job import Job
from mpifl.silo import Score
from mpifl.training.recovery import Recovery
from mpifl.training.wing import Wing, told_once
from mpifl.wire import Mean

UNTOLD = ("parties", "examples_trained")  # where they are 0


class MetricsCollector:
    """Collects the figures of each round: costs, scores of the model, and bytes on the wire."""

    def __init__(
        self,
        job: Job,
        spec: AnySpec,
        algorithm: Algorithm,
        server: Server,
        recovery: Recovery,
        note: Callable[..., None],
        wings: Sequence[Wing],
    ) -> None:
        self._wings = wings
        self._job = job
        self._spec = spec
        self._algorithm = algorithm
        self._server = server
        self._recovery = recovery
        self._note = note
        self._suspicion = Suspicion(job.aggregation.rule)
        self._states = dict[str, tuple[dict[str, Tensor], dict[int, Tensor]]]()
        self._later: Callable[[], Record] | None = None
        self._energy = EnergyMeter()

    def begin(self, run: Path) -> None:
        """Read the rounds that a run folder already has, since they decide which silos are suspected.

        Raises:
            InputError: the rounds cannot be read.
        """
        for record in [] if self._job.aggregation.is_mean else read_metrics(run):
            self._suspicion.see(record)

    def costs_of_round(self, began: float) -> Record:
        """Return the costs of the round's requests, and the faults of silos that were left out.

        Args:
            began: When the round began, by `time.perf_counter`.
        """
        ledger = self._recovery.federation.ledger
        costs: Record = {"seconds": time.perf_counter() - began}
        costs |= {name: value for name, value in vars(ledger).items() if isinstance(value, int | float)}
        costs = {name: value for name, value in costs.items() if value or name not in UNTOLD}
        costs |= ledger.speed(self._spec.silos if self._algorithm.task.generates else ())
        if losses := sorted(ledger.step_losses.items()):
            costs["step_losses"] = {self._recovery.federation.names[silo]: of for silo, of in losses}
        costs["bytes_of_silo_max"] = max(ledger.bytes_of_silo.values(), default=0)
        if ledger.rank_seconds:
            costs["rank_seconds"] = {str(rank): dict(spent) for rank, spent in ledger.rank_seconds.items()}
        costs["faults"] = {str(silo): fault for silo, fault in ledger.faults.items()}
        if ledger.weights:
            costs["weights"] = {str(silo): weight for silo, weight in ledger.weights.items()}
            costs["not_chosen"] = [str(silo) for silo, weight in ledger.weights.items() if weight == 0]
        if ledger.outside:
            costs["outside"] = {str(silo): round(share, 4) for silo, share in ledger.outside.items()}
        if ledger.lost:
            costs["attempts_lost"] = ledger.lost
        suspected = self._suspicion.see(costs)
        return costs | ({"suspected": suspected} if ledger.weights or ledger.outside else {})

    def evaluate_if_due(
        self, record: Mapping[str, Any] = MappingProxyType({}), *, later: bool = False, last: bool = False
    ) -> Record:
        """If an evaluation is due, score w on the test set and at the silos that have examples for it.

        Args:
            record: The round's figures so far, including the faults of silos that it left out.
            later: Whether the figures of the test set are left to `awaited`.
            last: Whether the training ends with this round, though the job asks for more.
        """
        left_out = record.get("faults", {})
        round, began = self._server.round, time.perf_counter()
        if round % self._job.evaluate.every and round != self._job.rounds and not last:
            return {}
        if self._job.evaluate.split is None:
            found = self._evaluated_here(told=record, later=later)
            found |= self._evaluated_at_silos(self._algorithm.evaluate, left_out)
        else:
            found = self._evaluated_here("valid")
            found |= self._evaluated_at_silos(self._algorithm.evaluate_valid, left_out)
        return found | {"seconds_evaluation": time.perf_counter() - began}

    def evaluate_at_server(self) -> Record:
        """Score w on the server's test set, unless rounds are scored on valid splits only."""
        return self._evaluated_here() if self._job.evaluate.split is None else {}

    @property
    def scores_silos(self) -> bool:
        """Whether rounds are scored at silos."""
        return self._job.evaluate.silos and self._held_out

    @property
    def awaits(self) -> bool:
        """Whether a round's figures of the test set are still to be asked for."""
        return self._later is not None

    def awaited(self) -> Record:
        """Return the figures of the test set that `evaluate_if_due` has left out, when they are there."""
        later, self._later = self._later, None
        return later() if later else {}

    def evaluate_at_end(self, kept: int = 0) -> Record:
        """Score w on test sets, if rounds were scored on valid splits only; tell what the model answered.

        Args:
            kept: The round of the run's model, if that is its best one. Answers of an earlier round are not
                told: what was counted then is not kept.
        """
        found: Record = {}
        if kept not in (0, self._server.round):
            self._states = {rows: ({}, {}) for rows in self._states}
        if self._job.evaluate.split is not None:
            self._states.clear()
            found["final"] = self._evaluated_here() | self._evaluated_at_silos(self._algorithm.evaluate_test)
        told = {rows: of for rows, states in self._states.items() if (of := self._answers(rows, *states))}
        return found | ({"answers": told} if told else {})

    def _answers(self, rows: str, states: Mapping[str, Tensor], single: Mapping[int, Tensor]) -> Record:
        """Return what the model answered to the server's test set ("test"), or to what silos hold out.

        Where sums are masked or privacy is promised, intervals and bounds alone are told of the silos' rows.
        """
        task, told = self._algorithm.task, answers_told(self._algorithm.task, states, single)
        if rows != "test" and (self._job.secure or self._job.privacy is not None):
            return {key: of for key, of in told.items() if key in ("intervals", "within")}
        test = getattr(self._spec, "test", None)
        labels = test.labels if rows == "test" and test else TaskFacts.of(self._spec).counts
        if task.choices and "commonest" not in told and sum(labels):
            told |= {"commonest": max(labels) / sum(labels), "of_training": rows != "test"}
        return told

    def close_round(self, record: Record) -> Record:
        """Return the round's bytes on the wire, memory, energy and lost ranks, and reset the counts.

        Args:
            record: The round's figures so far.

        Raises:
            InputError: a wing gives a figure that the round already has.
        """
        federation = self._recovery.federation
        transport = federation.transport
        found: Record = {"wire_sent": transport.sent, "wire_received": transport.received}
        found |= {"server_rss_mb": resident_mb(), **self._energy.spent()}
        found |= self._means_over(record)
        if transport.lost:
            found["ranks_lost"] = transport.lost
        transport.begin_count()
        federation.begin_ledger()
        told = {*record, *found}
        return found | told_once(told, self._wings, lambda wing: wing.spent(self._server), "the figure")

    def _means_over(self, told: Record) -> Record:
        """Return which of the told numbers have a mean over some of the silos only, and note each once."""
        found = self._recovery.federation.ledger.means_over
        fewer = sorted((name, many) for name, many in found.items() if name in told)
        for name, (some, of) in fewer:
            what = f"{name} is the mean over {some} of {of} silos; the others withhold it, or have none"
            self._note(f"round {self._server.round}: {what}", once=("means_over", name))
        return {"means_over": {name: some for name, (some, _) in fewer}} if fewer else {}

    @property
    def _held_out(self) -> bool:
        """Whether silos hold out examples to score the model on."""
        held_out = any(
            entry.examples.get("test") or entry.examples.get("valid") for entry in self._spec.silos
        )
        return held_out and self._algorithm.scored_at_silos

    def _evaluated_here(
        self, split: str = "test", told: Collection[str] = (), *, later: bool = False
    ) -> Record:
        """Score the model on a split of the server, if it has that split. `told` has the names of the round's
        figures so far; `later` leaves the score to `awaited`."""
        federation, server = self._recovery.federation, self._server
        try:
            score = self._recovery.run_with_recovery(
                lambda: self._algorithm.score(server, federation.everyone(server), split)
            )
        except RoundLost as lost:
            what = f"round {server.round}: not evaluated: {lost}"
            self._note(what, once=("unscored", str(lost)))
            return {}
        if score is None:
            return {}
        infos = self._algorithm.task.infos
        if split != "test":
            self._states["silos"] = score.states, score.single
            return {info.pooled: score.metrics[name] for name, info in infos.items()}
        told = {*told, "test_loss", *(info.test for info in infos.values())}
        more = told_once(told, self._wings, lambda wing: wing.figures(server), "the figure")
        self._later = functools.partial(self._figures_of, score)
        return more if later else self.awaited() | more

    def _figures_of(self, score: Score) -> Record:
        """Return the figures of the server's test set."""
        self._states["test"] = score.states, score.single
        infos = self._algorithm.task.infos
        return {"test_loss": score.loss} | {info.test: score.metrics[name] for name, info in infos.items()}

    def _evaluated_at_silos(self, work: Work, left_out: Mapping[str, str] = MappingProxyType({})) -> Record:
        """Score w at every silo that holds out a split; report silos that failed and were not left out of the
        round."""
        if not self.scores_silos:
            return {}
        federation, model = self._recovery.federation, self._algorithm.global_model(self._server)
        try:
            mean = self._recovery.run_with_recovery(
                lambda: federation.everyone(self._server).mean(work, **model)
            )
        except RoundLost as lost:
            what = f"round {self._server.round}: not evaluated at the silos: {lost}"
            self._note(what, once=("unscored", str(lost)))
            return {}
        self._note_unscored({k: why for k, why in mean.faults.items() if str(k) not in left_out})
        return self._over_silos(mean, work)

    def _note_unscored(self, faults: Mapping[int, str]) -> None:
        for silo, fault in faults.items():
            name = self._recovery.federation.names[silo]
            what = f"round {self._server.round}: silo {name} not evaluated: {fault}"
            self._note(what, once=("unscored", silo, fault))

    def _over_silos(self, mean: Mean, work: Work) -> Record:
        """Return the pooled figures of all silos, their summaries, and each silo's own figures by its name.

        None stands for a figure that a silo lacks, such as an AUROC without positives.
        """
        task, federation = self._algorithm.task, self._recovery.federation
        single = self._algorithm.slots(work.__name__).read(mean.vectors)
        states = {name: mean.vectors[name].clone() for name in state_lengths(task) if name in mean.vectors}
        self._states["silos"] = states, single
        found: Record = {task.infos[name].pooled: v for name, v in pooled(task, states, single).items()}
        for info in task.infos.values():
            if (weighted := mean.scalars.get(info.silo)) is not None:
                found[info.weighted] = weighted
            found |= summarize(info.silo, list(mean.each(info.silo)), worst=info.worst, best=info.best)
        found |= summarize("silo_loss", list(mean.each("silo_loss")), worst=max, best=min)
        keys = {"loss": "silo_loss"} | {name: info.silo for name, info in task.infos.items()}
        silos = {
            federation.names[k]: {name: one.get(key) for name, key in keys.items()}
            for k, one in sorted(mean.silos.items())
            if federation.knowledge.scored(work.__name__, k) or not one.keys().isdisjoint(keys.values())
        }
        return found | {"silos": silos}


def summarize(
    name: str, values: list[float], worst: Callable[..., float], best: Callable[..., float]
) -> Record:
    """Summarize a figure over silos with equal weights: mean, worst, best, standard deviation, mean of the
    worst tenth."""
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
