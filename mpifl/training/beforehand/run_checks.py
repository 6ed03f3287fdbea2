"""Find without ranks what a run of a job would refuse in its first second."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from torch import nn

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, Names
from mpifl.data.batches import Change, load_change
from mpifl.data.shards import AnySpec, VerticalSpec, read_any
from mpifl.learning import models
from mpifl.report.observers import check_tracking
from mpifl.run.job import (
    Job,
    check_as_read,
    check_private_data,
    check_vertical_data,
    is_silo_level,
    why_no_statistics,
)
from mpifl.run.job.tables import Model
from mpifl.silo.parameters import check_tensors, rules_of
from mpifl.training import Wing, WingsOf, core_alone, settle_kernels
from mpifl.training.beforehand.batch_layers import check_layers
from mpifl.training.beforehand.first_step import Learner, check_first_step, check_server_step


def validate_job(job: Job, source: str, wings_of: WingsOf = core_alone) -> AnySpec:
    """See that a job's shards, models and algorithm are there and fit each other; return what the shards are.

    Args:
        job: The job.
        source: Where it comes from, for the error.
        wings_of: Makes the wings that the job asks for.

    Raises:
        InputError: they are not, or do not.
    """
    with suppress(InputError):  # ranks may be elsewhere, and say it of themselves
        settle_kernels(job)  # before models are made, which computes
    spec = read_any(Path(job.shards))
    check_layout(job, spec, source)
    try:
        algorithm = job.build_algorithm().for_federation(spec)
        check_tracking(job)
        augment_of(job, spec)
        job.cohort.check(len(spec.silos))
        job.evaluate.check(splits_of(spec))
        if not isinstance(spec, VerticalSpec):
            _check_models(job, spec, algorithm)
        check_private_data(job, algorithm, spec)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    check_wings(job, spec, source, wings_of)
    return spec


def _check_models(job: Job, spec: AnySpec, algorithm: Algorithm) -> None:
    """See that each model can be built, and fits."""
    task = algorithm.task
    for nth, table in enumerate(tables_of(job, algorithm)):
        module = models.build(table.name, table.arguments, spec.features, task.width(spec), job.seed, task)
        check_model(job, spec, algorithm, module)
        check_tensors(module)
        rules_of(module, table.buffers, algorithm.personal_names(module))
        check_training(job, spec, algorithm, module, nth)


def tables_of(job: Job, algorithm: Algorithm) -> list[Model]:
    """Return the tables of the job's model and of the algorithm's further architectures behind it."""
    return [job.model, *map(Model.model_validate, algorithm.architectures())]


def check_training(job: Job, spec: AnySpec, algorithm: Algorithm, module: nn.Module, nth: int = 0) -> None:
    """See that silos can train a model, which is tried on made-up examples.

    Args:
        job, spec, algorithm: The training.
        module: The model.
        nth: Which of the algorithm's architectures it is.

    Raises:
        InputError: they cannot; the line says what would do.
    """
    task, table = algorithm.task, tables_of(job, algorithm)[nth]
    width = task.width(spec)
    made = functools.partial(models.build, table.name, table.arguments, spec.features, width, job.seed, task)
    local = algorithm.local
    if "local.batch_size" in algorithm.ignores:
        local = local.model_copy(update={"batch_size": "full", "steps": None, "epochs": 1})
    learner = Learner(
        where=f"[model] name = '{table.name}'",
        module=module,
        features=spec.features,
        aim=(spec.classes, spec.targets),
        width=width,
        local=local,
        remake=made,
        task=task,
        own=algorithm.own_objective,
        augment=augment_of(job, spec),
        personal=algorithm.personal_names(module),
        rules=table.buffers,
        by_example=job.privacy is not None and not is_silo_level(job),
        rounds=job.rounds,
    )
    sizes = [entry.examples.get("train", 0) for entry in spec.silos]
    mine = [size if algorithm.architecture_of(silo) == nth else 0 for silo, size in enumerate(sizes)]
    check_first_step(learner, mine, Names([entry.name for entry in spec.silos]))
    public = spec.public.examples.get("public", 0) if spec.public is not None else 0
    if (distilled := algorithm.distillation) is not None:
        check_server_step(replace(learner, local=distilled), public, "[algorithm] distill_batch")
    if job.aggregation.trains_at_server:
        check_server_step(learner, public, "[local] batch_size")


def check_layout(job: Job, spec: AnySpec, source: str) -> None:
    """See that a job's algorithm is for what silos of its folder have.

    Raises:
        InputError: it is for the other layout.
    """
    try:
        check_vertical_data(job, job.build_algorithm(), spec)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def check_told(job: Job, spec: AnySpec) -> None:
    """See, at each rank, that a job is one that an honest rank 0 lets pass: another may tell what it likes.

    Raises:
        InputError: it is not.
    """
    check_as_read(job)
    algorithm = job.build_algorithm()
    check_vertical_data(job, algorithm, spec)
    check_private_data(job, algorithm.for_federation(spec), spec)


def parameters_of(job: Job, spec: AnySpec) -> int:
    """Return how many parameters of a job's model are trained, and leave its silos."""
    algorithm = job.build_algorithm().for_federation(spec)
    task, table = algorithm.task, job.model
    module = models.build(
        table.name, table.arguments, spec.features, width=task.width(spec), seed=job.seed, task=task
    )
    own = algorithm.personal_names(module)
    return sum(p.numel() for name, p in module.named_parameters() if p.requires_grad and name not in own)


def augment_of(job: Job, spec: AnySpec) -> Change | None:
    """Return what is done to the batches that silos train on; None without the key.

    Raises:
        InputError: there is no such change, or the examples are none for it.
    """
    name = job.data.augment
    return None if name is None else load_change(name, spec.features, spec.targets)


def check_model(job: Job, spec: AnySpec, algorithm: Algorithm, module: nn.Module) -> None:
    """See that a model fits the task, the algorithm and, where the job has it, `[privacy]`.

    Raises:
        InputError: it does not.
    """
    algorithm.task.check(spec, module)
    algorithm.check(module, spec)
    if is_silo_level(job) and (why := why_no_statistics(algorithm, module)):
        raise InputError(why)
    if job.privacy is not None and not is_silo_level(job):
        check_layers(module, "[privacy]")


def splits_of(spec: AnySpec) -> set[str]:
    """Return the splits that one silo or more has examples of."""
    return {split for entry in spec.silos for split, examples in entry.examples.items() if examples}


def check_wings(job: Job, spec: AnySpec, source: str, wings_of: WingsOf) -> Sequence[Wing]:
    """See what the wings that a job asks for see to; return them.

    Raises:
        InputError: a wing is not there, or the job asks it for what it cannot do.
    """
    try:
        algorithm = job.build_algorithm().for_federation(spec)
        wings = wings_of(job)
        for wing in wings:
            wing.check(spec, algorithm)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    return wings


def plan_wings(job: Job, spec: AnySpec, source: str, wings: Sequence[Wing]) -> None:
    """Have wings work out what takes seconds and follows from the job and the federation.

    Raises:
        InputError: nothing follows.
    """
    try:
        algorithm = job.build_algorithm().for_federation(spec)
        check_private_data(job, algorithm, spec)
        for wing in wings:
            wing.plan(spec, algorithm)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
