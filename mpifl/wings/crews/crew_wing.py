"""What `[silo] parts` adds to a training: batches are cut into parts, which the ranks of a crew take."""

from __future__ import annotations

import torch

from mpifl.exchange.worker_side import WorkerContext
from mpifl.run.job import Job
from mpifl.silo.steps import Trains
from mpifl.training import Wing
from mpifl.wings.crews.crew_training import trains_of
from mpifl.wire import Transport


class ByCrews(Wing):
    """Have the parts of a batch taken by the ranks of a crew, or one after another."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def trains(
        self, trains: Trains, context: WorkerContext, device: torch.device, transport: Transport
    ) -> Trains:
        """Return what has parts taken.

        Raises:
            InputError: this rank trains on a GPU, or a rank of its crew cannot take part.
        """
        return trains_of(self._job, context.algorithm, context.models, device, transport)


def wing(job: Job) -> Wing:
    """Return what a job's `[silo] parts` adds."""
    return ByCrews(job)
