"""A world of one rank in which silos answer without training: no MPI, no steps, and no site of the user's."""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from mpifl.data.shards import FederationSpec, Shard, open_shard
from mpifl.exchange.worker_side import WorkerContext
from mpifl.run.job import Job, is_silo_level
from mpifl.silo import Silo, learnable
from mpifl.silo.steps import LocalRun, Training, Trains
from mpifl.training import Wing
from mpifl.wire import Platform, Transport

ROWS = 8
"""Rows of a silo's splits that are there, for algorithms that take a gradient or a loss of all."""
MOVED, LOSS = 1e-3, 1.0
"""What each parameter moves in a training that takes no step, and its loss."""


class _NoMPI(Platform):
    """The platform of a world of one rank, which sends nothing."""

    mpi: Any = SimpleNamespace(Exception=OSError, ERR_PROC_FAILED=0, ERR_PROC_FAILED_PENDING=0, ERR_REVOKED=0)


def alone() -> Transport:
    """Return the wire of one rank that has no MPI."""
    return Transport(SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: 1), None, _NoMPI())


class Untrained(Wing):
    """Lets silos answer without steps, from a few of their rows."""

    name = "plan"
    of_rank = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._private = job.privacy is not None and not is_silo_level(job)
        self._every = job.tracking.step_losses
        self.lent: dict[int, Silo] = {}
        """The latest lending of each silo that was asked, with what it keeps."""

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Open shards without their checksum, and with a few rows, unless something goes by their number."""

        def opened(silo: int) -> Shard:
            assert isinstance(spec, FederationSpec)
            shard = open_shard(Path(self._job.shards), spec.silos[silo], spec, checksum=False)
            shard = learnable(shard, context.algorithm.task)
            few = {name: split[:ROWS] for name, split in shard.splits.items()}
            whole = self._private or self._every or context.algorithm.seedless
            return shard if whole else Shard(shard.path, few)

        def lent(id: int, *given: Any, **more: Any) -> Silo:
            self.lent[id] = silo = context.silo(id, *given, **more)
            return silo

        spec = context.spec
        return dataclasses.replace(context, open=opened, silo=lent)

    def trains(
        self, trains: Trains, context: WorkerContext, device: torch.device, transport: Transport
    ) -> Trains:
        """Return the function that takes no step."""
        return self.untrained

    def untrained(self, t: Training) -> LocalRun:
        """Return the result of a training that moved all parameters alike; that of DP-SGD tells no loss."""
        t.model.trained.copy_(t.start).add_(MOVED)
        optimizer = t.optimizer() if t.settings.keep_optimizer_state else None
        loss = math.nan if self._private else LOSS
        delta, losses = t.model.delta(t.start, t.allocate), -(-t.steps // self._every) if self._every else 0
        end = t.model.trained
        return LocalRun(delta, end, t.steps, len(t.data), loss, optimizer, losses=[loss] * losses)


@contextmanager
def throwaway_site() -> Iterator[Path]:
    """Lend a folder with a site, and a run folder, that are removed: no budget is spent, no key is used."""
    with tempfile.TemporaryDirectory() as name:
        before = os.environ.get("MPIFL_SITE")
        site, run = Path(name) / "site", Path(name) / "run"
        site.mkdir(mode=0o700)
        run.mkdir()
        os.environ["MPIFL_SITE"] = str(site)
        try:
            yield Path(name)
        finally:
            if before is None:
                del os.environ["MPIFL_SITE"]
            else:
                os.environ["MPIFL_SITE"] = before
