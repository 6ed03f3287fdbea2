"""What is reported of a round: what it brought, what the model is worth after it, what it cost."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, RoundLost
from mpifl.data import FederationSpec
from mpifl.run import Job, rss_mb
from mpifl.server import Server
from mpifl.tracking import Record, spread
from mpifl.training.recovery import Survival
from mpifl.wire import library


class Recorder:
    """Puts together the record of each round."""

    def __init__(
        self, job: Job, spec: FederationSpec, algorithm: Algorithm, server: Server, survival: Survival
    ) -> None:
        self._job, self._spec, self._algorithm = job, spec, algorithm
        self._server, self._survival = server, survival
        self._unscored: dict[int, str] = {}
        """Why silos could not be evaluated last time."""
        self._why_unscored = ""
        """Why none was, if so."""

    def record(self, scalars: dict[str, float], began: float) -> Record:
        """Evaluate where it is due and put together what is to be reported of a round."""
        server, federation = self._server, self._survival.federation
        ledger = federation.ledger
        costs = {name: value for name, value in vars(ledger).items() if isinstance(value, int | float)}
        costs["bytes_of_silo_max"] = max(ledger.bytes_of_silo.values(), default=0)
        trained: Record = {"seconds": time.perf_counter() - began, **costs}
        if ledger.rank_seconds:
            trained["rank_seconds"] = {str(rank): dict(spent) for rank, spent in ledger.rank_seconds.items()}
        left_out = dict(ledger.faults)
        trained["faults"] = {str(silo): fault for silo, fault in left_out.items()}
        record: Record = {"round": server.round, "time": time.time(), **scalars}
        if self._due:
            evaluating = time.perf_counter()
            record |= self.evaluated(left_out)
            trained["seconds_evaluation"] = time.perf_counter() - evaluating
        transport = federation.transport
        record |= {
            **trained,
            "wire_sent": transport.sent,
            "wire_received": transport.received,
            "server_rss_mb": rss_mb(),
        }
        transport.sent = transport.received = 0
        if ledger.lost:
            record["attempts_lost"] = ledger.lost
        if transport.lost:
            record["ranks_lost"] = transport.lost
        federation.begin_ledger()
        return record

    @property
    def _due(self) -> bool:
        round = self._server.round
        return round % self._job.evaluate.every == 0 or round == self._job.rounds

    def evaluated(self, left_out: Collection[int] = ()) -> Record:
        """Score w on the global test set, and at the silos, where there is something to score on and it is due."""
        if not self._due:
            return {}
        score = self._server.evaluate(self._server.state["w"])
        found = {}
        if score:
            found = {"test_loss": score.loss}
            found |= {info.test: score.metrics[name] for name, info in self._algorithm.task.infos.items()}
        return found | self._evaluated_at_silos(left_out)

    def target_notes(self) -> list[str]:
        """Say what a target is held against, where that is not the test set."""
        evaluate, metric = self._job.evaluate, self._algorithm.task.main_metric.name
        if evaluate.wanted is None or self._server.judges:
            return []
        key = "[evaluate] target" + ("_accuracy" if evaluate.target is None else "")
        why = "there is no test set" if self._spec.test is None else "silos own a part of the model"
        if self._held_out and self._job.evaluate.silos:
            return [f"{key}: is for the {metric} on all that the silos hold out, as {why}"]
        nor = "and [evaluate] silos = false" if self._held_out else "nor do silos hold out data"
        return [f"{key}: {why}, {nor}"]

    @property
    def _held_out(self) -> bool:
        return any(entry.examples.get("test") or entry.examples.get("valid") for entry in self._spec.silos)

    def _evaluated_at_silos(self, left_out: Collection[int]) -> Record:
        """Score w at every silo that holds out a split; tell of those that failed, but not of those left out anyway."""
        if not (self._job.evaluate.silos and self._held_out):
            return {}
        federation, model = self._survival.federation, self._algorithm.global_model(self._server)
        names = federation.names
        try:
            mean = self._survival.through(
                lambda: federation.everyone(self._server).mean(self._algorithm.evaluate, **model)
            )
        except RoundLost as lost:
            if str(lost) != self._why_unscored:
                self._survival.tell(f"round {self._server.round}: not evaluated at the silos: {lost}")
            self._why_unscored = str(lost)
            return {}
        self._why_unscored = ""
        for silo, fault in mean.faults.items():
            if silo not in left_out and self._unscored.get(silo) != fault:
                self._survival.tell(f"round {self._server.round}: silo {names[silo]} not evaluated: {fault}")
        self._unscored = mean.faults
        found: Record = {}
        for info in self._algorithm.task.infos.values():
            if (weighted := mean.scalars.get(info.silo)) is not None:
                found[f"{info.silo}_weighted"] = weighted
            found |= spread(info.silo, list(mean.each(info.silo)), worst=info.worst, best=info.best)
        return found | spread("silo_loss", list(mean.each("silo_loss")), worst=max, best=min)


def reportable(brought: Any, algorithm: Algorithm) -> dict[str, float]:
    """Return what an algorithm's round has returned, if it can be reported.

    Raises:
        InputError: it is no table.
    """
    if isinstance(brought, dict):
        return brought
    what = f"{type(algorithm).__name__}.round returned {'None' if brought is None else f'a {type(brought).__name__}'}"
    raise InputError(f"{what}; have it return what is to be reported, such as mean.scalars")


def title(job: Job, spec: FederationSpec, server: Server, ranks: Mapping[str, Mapping[str, str]]) -> str:
    """Return the line that a training begins with; `ranks` is what each worker says of itself."""
    devices = sorted({f"{about['host']} {about['device']}, threads {about['threads']}" for about in ranks.values()})
    model = f"{job.model.name} with {len(server.model.trained):,} parameters"
    where = f"{len(spec.silos)} silos on {len(ranks)} workers ({'; '.join(devices)})"
    return f"{job.name}: {job.algorithm['name']}, {model}, {where}, {library()}"
