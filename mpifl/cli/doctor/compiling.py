"""`mpifl doctor --compile JOB`: compiles a job's local steps and keeps them, so that a run need not wait.

Only training shows which steps an algorithm compiles. So every silo takes one step in a round, and only the
machine code is kept.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mpifl.common import InputError, cache
from mpifl.common.machine import tuning
from mpifl.run.job import Job, read_job
from mpifl.run.job.tables import (
    AggregationSettings,
    AttackSettings,
    Checkpoint,
    CohortTable,
    CompressionSettings,
    Evaluate,
    Tracking,
)
from mpifl.training import agree, loop
from mpifl.wings import wings_of
from mpifl.wire.launching import world


def compile_steps(path: Path | None) -> None:
    """Let the first worker of each node compile its silos' steps; all ranks call this together.

    Raises:
        InputError: the file is not a job, or the job compiles nothing.
    """
    began, transport = time.perf_counter(), world()
    with scratch(transport.is_server) as folder:
        told = agree(transport, lambda: {"job": _short(path).model_dump_json(exclude_none=True)})
        with tuning.subnormals_as_zero():
            loop.train(Job.model_validate_json(told["job"]), folder, (), False, transport, wings_of=wings_of)
    if transport.is_server:
        seconds = time.perf_counter() - began
        print(f"{path}: each silo took a step; what is compiled lies in {cache.folder()} ({seconds:.1f} s)")


@contextlib.contextmanager
def scratch(is_server: bool) -> Iterator[Path]:
    """Give a run folder that is removed at the end; the server's folder counts.

    It is in the current folder, where all nodes look for runs.
    """
    folder = Path(tempfile.mkdtemp(prefix=".trial-", dir=Path())) if is_server else Path()
    try:
        yield folder / "run"
    finally:
        if is_server:
            shutil.rmtree(folder, ignore_errors=True)


def _short(path: Path | None) -> Job:
    """Return a job of one round in which each silo takes one step. Settings without influence on the machine
    code are reset. Raise InputError if there is no such job, or it compiles nothing."""
    if path is None or path.is_dir():
        raise InputError(
            "--compile: name the job whose steps are to be compiled: mpifl doctor --compile JOB.toml"
        )
    job = read_job(path)
    if not job.local.compile:
        raise InputError(f"{path}: [local] compile = false: no step is compiled; use compile = true")
    return job.model_copy(
        update={
            "rounds": 1,
            "local": job.local.lasting(steps=1).model_copy(update={"deadline": None}),
            "cohort": CohortTable(),
            "aggregation": AggregationSettings(),
            "compression": CompressionSettings(),
            "attack": AttackSettings(),
            "privacy": None,
            "security": None,
            "evaluate": Evaluate(silos=False),
            "checkpoint": Checkpoint(),
            "tracking": Tracking(console=False),
        }
    )
