"""Whether a job could start: what a run would refuse in its first second, found before it, and without ranks."""

from __future__ import annotations

from pathlib import Path

from mpifl import models
from mpifl.common import InputError
from mpifl.data import FederationSpec, read_federation
from mpifl.run import Job, Model
from mpifl.tracking import check_packages


def rehearse(job: Job, source: str) -> FederationSpec:
    """See that a job's shards, models and algorithm are there and fit each other; return what the shards are.

    Args:
        job: The job.
        source: Where it comes from, for the error.

    Raises:
        InputError: they are not, or do not.
    """
    spec, algorithm = read_federation(Path(job.shards)), job.build_algorithm()
    try:
        check_packages(job)
        for table in (job.model, *map(Model.model_validate, algorithm.architectures())):
            given = (table.name, table.arguments, spec.features, spec.classes, job.seed)
            module = models.build(*given, algorithm.task)
            algorithm.task.check(spec, module)
            algorithm.check(module, spec)
            algorithm.personal_names(module)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    return spec
