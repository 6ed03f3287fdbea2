"""What is reported of a round: what it brought, what the model is worth after it, what it cost."""

from __future__ import annotations

import time

from mpifl.algorithms import Algorithm
from mpifl.errors import RoundLost
from mpifl.job import Job
from mpifl.ledger import Ledger
from mpifl.run import rss_mb
from mpifl.server import Server
from mpifl.shards import FederationSpec
from mpifl.survival import Survival
from mpifl.tracking import Record, spread


class Recorder:
    """Puts together the record of each round."""

    def __init__(
        self, job: Job, spec: FederationSpec, algorithm: Algorithm, server: Server, survival: Survival
    ) -> None:
        self._job, self._spec, self._algorithm = job, spec, algorithm
        self._server, self._survival = server, survival

    def record(self, scalars: dict[str, float], began: float) -> Record:
        """Evaluate where it is due and put together what is to be reported of a round."""
        server, federation = self._server, self._survival.federation
        ledger = federation.ledger
        costs = {name: value for name, value in vars(ledger).items() if isinstance(value, int | float)}
        costs["bytes_of_silo_max"] = max(ledger.bytes_of_silo.values(), default=0)
        trained: Record = {"seconds": time.perf_counter() - began, **costs}
        if ledger.rank_seconds:
            trained["rank_seconds"] = {str(rank): dict(spent) for rank, spent in ledger.rank_seconds.items()}
        record: Record = {"round": server.round, "time": time.time(), **scalars}
        if server.round % self._job.evaluate.every == 0 or server.round == self._job.rounds:
            evaluating = time.perf_counter()
            record |= self._evaluate()
            trained["seconds_evaluation"] = time.perf_counter() - evaluating
        transport = federation.transport
        record |= {
            **trained,
            "wire_sent": transport.sent,
            "wire_received": transport.received,
            "server_rss_mb": rss_mb(),
        }
        transport.sent = transport.received = 0
        record |= {"faults": {str(silo): fault for silo, fault in ledger.faults.items()}}
        if transport.lost:
            record["ranks_lost"] = transport.lost
        federation.ledger = Ledger()
        return record

    def _evaluate(self) -> Record:
        """Score w on the global test set, and at every silo that holds out a split."""
        record: Record = {}
        if score := self._server.evaluate(self._server.state["w"]):
            record |= {"test_loss": score.loss, "test_accuracy": score.accuracy}
        held_out = any(entry.examples.get("test") or entry.examples.get("valid") for entry in self._spec.silos)
        if self._job.evaluate.silos and held_out:
            record |= self._evaluate_at_silos()
        return record

    def _evaluate_at_silos(self) -> Record:
        federation, model = self._survival.federation, self._algorithm.global_model(self._server)
        try:
            mean = self._survival.through(
                lambda: federation.everyone(self._server).mean(self._algorithm.evaluate, **model)
            )
        except RoundLost as lost:
            self._survival.tell(f"round {self._server.round}: not evaluated at the silos: {lost}")
            return {}
        return {
            **spread("silo_accuracy", list(mean.each("silo_accuracy")), worst=min, best=max),
            **spread("silo_loss", list(mean.each("silo_loss")), worst=max, best=min),
        }
