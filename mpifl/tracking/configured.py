"""Observers of a run: they may only report."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mpifl.common import InputError, Names
from mpifl.run import Job
from mpifl.tracking.base import Observer, Record, judged, spread
from mpifl.tracking.console import Console
from mpifl.tracking.jsonlines import JsonLines


def check_packages(job: Job) -> None:
    """See that what a job's `[tracking]` asks for is installed.

    Raises:
        InputError: it is not.
    """
    for name, package in (("tensorboard", "tensorboard"), ("mlflow", "mlflow")):
        if getattr(job.tracking, name) and find_spec(package) is None:
            raise InputError(f"[tracking] {name} = true: needs 'pip install mpifl[{name}]'")


def observers(job: Job, run: Path, names: Names | None = None) -> list[Observer]:
    """Return the observers that a job's `[tracking]` asks for; `names` are the silos'."""
    chosen: list[Observer] = []
    task = job.build_algorithm().task
    if job.tracking.jsonl:
        chosen.append(JsonLines(run))
    if job.tracking.tensorboard:
        from mpifl.tracking.board import TensorBoard

        chosen.append(TensorBoard(run, task.infos.values()))
    if job.tracking.mlflow:
        from mpifl.tracking.mlflow import MLflow

        chosen.append(MLflow(job, run, task.main_metric))
    chosen.append(Console(job.rounds, job.tracking.console, names, task.main_metric))
    return chosen


__all__ = ["Observer", "Record", "check_packages", "judged", "observers", "spread"]
