"""The wing for a test set that others than the server score: the workers, or a process behind the round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec, FederationSpec
from mpifl.exchange import Federation
from mpifl.exchange.worker_side import WorkerContext
from mpifl.learning.metrics import summable
from mpifl.run.job import Job
from mpifl.sums import Aggregator
from mpifl.training import ModelFacts, Wing
from mpifl.wings.scoring.at_workers import AtWorkers
from mpifl.wings.scoring.behind import Behind
from mpifl.wings.scoring.test_scores import Scores
from mpifl.wire import KeepTestSet, Request, ScoreBatches, Transport

UNJUDGED = "the server has no test set that it could judge the model by"


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

    def notes_of_job(self, silos: int, model: Callable[[], ModelFacts]) -> list[str]:
        """Return a line if the server has no test set."""
        return [] if model().judged else [f"[evaluate] where = 'workers': {UNJUDGED}"]


class BehindWing(Wing):
    """Lets a process beside the server score its test set while the next round trains."""

    _scored_by: Behind | None = None

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Check that the server judges the model by a test set.

        Raises:
            InputError: it does not.
        """
        if type(algorithm).score is not Algorithm.score:
            what = f"'{self._job.algorithm['name']}' has a way of its own to score a model"
            raise InputError(f"[evaluate] behind = true: {what}; leave it out")
        if spec.test is None:
            raise InputError(f"[evaluate] behind = true: {UNJUDGED}; leave it out")

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Note the federation, and change nothing."""
        assert isinstance(context.spec, FederationSpec)
        self._spec = context.spec
        return context

    def begin(self, server: Server, exchange: Federation, note: Callable[..., None]) -> None:
        """Start the process that scores.

        Raises:
            InputError: silos own a part of the model, or the server scores on a GPU.
        """
        if not server.judges:
            raise InputError(f"[evaluate] behind = true: {UNJUDGED}; leave it out")
        if (device := server.model.device).type != "cpu":
            what = f"the server scores on {device}, and a second process there was not tried"
            raise InputError(f"[evaluate] behind = true: {what}; use device = 'cpu', or leave it out")
        server.scored_by = self._scored_by = Behind(self._job, self._spec, note)

    def notes_of_job(self, silos: int, model: Callable[[], ModelFacts]) -> list[str]:
        """Return a line if each round is scored at once all the same."""
        if self._job.checkpoint.every > 1 and self._job.rounds > 1:
            return []
        return ["[evaluate] behind = true: has no effect, as a round with a checkpoint is scored at once"]

    def end(self) -> None:
        """End the process that scores."""
        if self._scored_by:
            self._scored_by.end()


def wing(job: Job) -> Wing:
    """Return the wing for a job's `[evaluate]`."""
    return BehindWing(job) if job.evaluate.behind else AtWorkersWing(job)
