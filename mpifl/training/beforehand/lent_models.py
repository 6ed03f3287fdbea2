"""The models of a training on each rank."""

from __future__ import annotations

import sys
from typing import Any

import torch

from mpifl.algorithms import Algorithm
from mpifl.data.shards import FederationSpec
from mpifl.learning import models
from mpifl.run.folder import load_initial
from mpifl.run.job import Job
from mpifl.run.job.tables import Model
from mpifl.silo.parameters import FlatModel
from mpifl.training.beforehand.run_checks import check_model, check_training, tables_of


def models_of(
    job: Job,
    spec: FederationSpec,
    algorithm: Algorithm,
    device: torch.device,
    *,
    is_reporter: bool = True,
    tries: bool = False,
) -> list[FlatModel]:
    """Build the job's model, followed by the algorithm's further architectures.

    Args:
        job, spec, algorithm: The training.
        device: The device of the models.
        is_reporter: Whether this rank prints messages that are the same for all ranks of its node.
        tries: Whether this rank checks that each model can be trained.

    Raises:
        InputError: a model cannot be built, does not fit, or cannot be trained.
    """
    found = []
    for nth, table in enumerate(tables_of(job, algorithm)):
        module = _module(table, job, spec, algorithm, is_reporter)
        if tries:
            check_training(job, spec, algorithm, module, nth)
        personal = algorithm.personal_names(module)
        how: dict[str, Any] = {"saves": table.save, "rules": table.buffers, "recalls": algorithm.recalls}
        found.append(FlatModel(module, device, personal, is_reporter=is_reporter, **how))
    return found


def _module(
    table: Model, job: Job, spec: FederationSpec, algorithm: Algorithm, is_reporter: bool
) -> torch.nn.Module:
    task = algorithm.task
    module = models.build(table.name, table.arguments, spec.features, task.width(spec), job.seed, task)
    skipped = load_initial(module, table)
    if skipped and is_reporter:
        print(skipped, file=sys.stderr, flush=True)
    check_model(job, spec, algorithm, module)
    return module
