"""The wing that takes the fastest steps that a training allows."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mpifl.algorithms import Server
from mpifl.exchange import Federation
from mpifl.exchange.worker_side import Worker, WorkerContext
from mpifl.silo.steps import USUAL, LocalRun, Method, Step, Training, Trains, train
from mpifl.training import Wing
from mpifl.wings.fast.chains import ChainStep, by_formulas
from mpifl.wire import Transport


class Quick(Method):
    """Shuffled batches, and the fastest step that a training allows."""

    def step(self, t: Training) -> Step:
        """Return the step of a training."""
        single = by_formulas(t)
        if not t.settings.compile:
            return single or USUAL.step(t)
        from mpifl.wings.fast.compiled import tell  # other trainings need neither
        from mpifl.wings.fast.traced import Traced

        if not (isinstance(single, ChainStep) and single.is_limited_by_memory):
            return Traced(t, lambda t: single or USUAL.step(t))
        tell(t.model, "memory limits a step of layers as large as this model's")
        return single


QUICK = Quick()


def quickly(t: Training) -> LocalRun:
    """Train as `train` does, by the fastest steps."""
    return train(t, QUICK)


class Fast(Wing):
    """Takes steps by formulas, by machine code, or for several silos at once."""

    def trains(
        self, trains: Trains, context: WorkerContext, device: torch.device, transport: Transport
    ) -> Trains:
        """Return the function that trains silos by the fastest steps."""
        return quickly

    def worker(self, kind: type[Worker]) -> type[Worker]:
        """Return the class of worker: if the job asks for it, one whose silos train together."""
        if not self._job.local.batch_silos:
            return kind
        from mpifl.wings.fast.stacked_worker import Batching  # other trainings do not need it

        return Batching

    def begin(self, server: Server, exchange: Federation, note: Callable[..., None]) -> None:
        """Make the server's own trainings take the fastest steps, too."""
        server.trains = quickly


wing = Fast
