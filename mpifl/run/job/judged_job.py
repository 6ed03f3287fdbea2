"""The job of a finished run, judged by further metrics or above another threshold than its own."""

from __future__ import annotations

from collections.abc import Sequence

from mpifl.common import InputError, choices, inline_table
from mpifl.learning.metrics import choose
from mpifl.learning.tasks import PackageTask
from mpifl.run.job.job import Job


def judged_otherwise(job: Job, metrics: Sequence[str], threshold: float | None) -> Job:
    """Return a job whose task has further metrics behind its own, and answers yes above another probability.

    Raises:
        InputError: the task has no such metric, or no threshold.
    """
    return _answering_above(_judged_by(job, metrics), threshold)


def _judged_by(job: Job, metrics: Sequence[str]) -> Job:
    """Return a job whose task has further metrics of the package behind its own."""
    if not metrics:
        return job
    task = job.build_task()
    if not isinstance(task, PackageTask):
        what = f"the run's task {type(task).__name__} names its metrics itself"
        raise InputError(f"--metric {metrics[0]}: {what}; leave it out")
    asked = [inline_table(one, "--metric") if one.startswith("{") else one for one in dict.fromkeys(metrics)]
    for one in asked:
        name = str(one.get("name", "")) if isinstance(one, dict) else one
        if name not in task.catalogue:
            fit = choices(name, task.catalogue, "these do:")
            raise InputError(f"--metric {name}: does not fit the task '{task.kind}'; {fit}")
    own = task.usual if task.chosen_metrics is None else task.chosen_metrics
    every = [*own, *(one for one in asked if isinstance(one, dict) or one not in task.names)]
    try:
        choose(every, task.catalogue)
    except ValueError as error:
        raise InputError(f"--metric: {error}") from None
    return job.model_copy(update={"task": {**job.task, "metrics": every}})


def _answering_above(job: Job, threshold: float | None) -> Job:
    """Return a job whose task answers yes above another probability."""
    if threshold is None:
        return job
    if "threshold" not in type(task := job.build_task()).model_fields:
        what = f"is for the task 'binary'; that of the run is '{getattr(task, 'kind', type(task).__name__)}'"
        raise InputError(f"--threshold {threshold:g}: {what}; leave it out")
    if not 0 < threshold < 1:
        raise InputError(f"--threshold {threshold:g}: should be above 0 and below 1")
    return job.model_copy(update={"task": {**job.task, "threshold": threshold}})
