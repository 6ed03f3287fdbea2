"""The wing for `[evaluate] where = "workers"`: workers score the server's test set."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.exchange import Federation
from mpifl.exchange.worker_side import WorkerContext
from mpifl.learning.metrics import summable
from mpifl.sums import Aggregator
from mpifl.training import Wing
from mpifl.wings.scoring.at_workers import AtWorkers
from mpifl.wings.scoring.test_scores import Scores
from mpifl.wire import KeepTestSet, Request, ScoreBatches, Transport


class AtWorkersWing(Wing):
    """Lets the workers score the server's test set."""

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Check that workers' shares add up to a score.

        Raises:
            InputError: the states of a metric do not add up.
        """
        metrics = algorithm.task.metrics()
        if apart := [name for name, metric in metrics.items() if not summable(metric)]:
            what = f"where = 'workers': the states of the metric '{apart[0]}' do not add up over batches"
            raise InputError(f"[evaluate] {what}; leave where out, or use other [task] metrics")

    def aggregators(self, context: WorkerContext, transport: Transport) -> Mapping[type[Request], Aggregator]:
        """Return the aggregator that keeps the test set and scores a rank's batches."""
        self._scores = Scores(context, transport)
        return {KeepTestSet: self._scores, ScoreBatches: self._scores}

    def begin(self, server: Server, exchange: Federation, note: Callable[..., None]) -> None:
        """Make the server score its test set by the workers."""
        server.scored_by = AtWorkers(exchange, self._scores, note)

    def notes(self, server: Server, exchange: Federation) -> list[str]:
        """Return a line if the server has no test set."""
        if server.judges:
            return []
        return ["[evaluate] where = 'workers': the server has no test set that it could judge the model by"]


wing = AtWorkersWing
