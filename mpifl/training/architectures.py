"""The models that a training has on each rank."""

from __future__ import annotations

import sys

import torch

from mpifl import models
from mpifl.algorithms import Algorithm
from mpifl.data import FederationSpec
from mpifl.run import Job, Model, load_initial
from mpifl.silo import FlatModel
from mpifl.training.validation import check_model


def models_of(
    job: Job, spec: FederationSpec, algorithm: Algorithm, device: torch.device, is_reporter: bool = True
) -> list[FlatModel]:
    """Build the job's model, and the algorithm's further architectures behind it."""
    tables = [job.model, *map(Model.model_validate, algorithm.architectures())]
    return [_model(table, job, spec, algorithm, device, is_reporter) for table in tables]


def _model(
    table: Model,
    job: Job,
    spec: FederationSpec,
    algorithm: Algorithm,
    device: torch.device,
    is_reporter: bool,
) -> FlatModel:
    task = algorithm.task
    module = models.build(table.name, table.arguments, spec.features, task.width(spec), job.seed, task)
    skipped = load_initial(module, table)
    if skipped and is_reporter:
        print(skipped, file=sys.stderr, flush=True)
    check_model(job, spec, algorithm, module)
    personal = algorithm.personal_names(module)
    return FlatModel(module, device, personal, is_reporter=is_reporter, saves=table.save)
