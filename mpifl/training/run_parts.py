"""The parts of a training on the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpifl.algorithms import Algorithm, Server
from mpifl.data.shards import AnySpec
from mpifl.exchange import Federation
from mpifl.learning.metrics import MetricInfo
from mpifl.report.observers import Observers
from mpifl.run.job import Job
from mpifl.training.best import BestModel
from mpifl.training.build import Built
from mpifl.training.checkpointing import CheckpointManager
from mpifl.training.draw_cohort import Selector, round_clock
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
    checkpoints = CheckpointManager(out, job.checkpoint, server, recovery, observers.note)
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
