"""Observers of a run: they may only report."""

from __future__ import annotations

from pathlib import Path

from mpifl.errors import InputError
from mpifl.job import Job
from mpifl.tracking.base import Observer, Record
from mpifl.tracking.console import Console
from mpifl.tracking.jsonlines import JsonLines


def observers(job: Job, run: Path) -> list[Observer]:
    """Return the observers that a job's `[tracking]` asks for.

    Raises:
        InputError: one of them needs a package that is not installed.
    """
    chosen: list[Observer] = []
    if job.tracking.jsonl:
        chosen.append(JsonLines(run))
    if job.tracking.tensorboard:
        try:
            from mpifl.tracking.board import TensorBoard
        except ImportError:
            raise InputError("[tracking] tensorboard = true: needs 'pip install mpifl[tensorboard]'") from None
        chosen.append(TensorBoard(run))
    if job.tracking.mlflow:
        try:
            from mpifl.tracking.mlflow import MLflow
        except ImportError:
            raise InputError("[tracking] mlflow = true: needs 'pip install mpifl[mlflow]'") from None
        chosen.append(MLflow(job, run))
    chosen.append(Console(job.rounds, job.tracking.console))
    return chosen


__all__ = ["Observer", "Record", "observers"]
