"""Checks of a job without ranks: what a run would refuse in its first second."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, Names, sha256_of
from mpifl.data.batches import Change, Warp, load_change, load_warp
from mpifl.data.shards import AnySpec, VerticalSpec, encoding_of, read_any
from mpifl.learning import models
from mpifl.report.observers import check_tracking
from mpifl.run.folder import load_initial
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
from mpifl.training import Wing, WingsOf, check_clock, core_alone, settle_kernels
from mpifl.training.beforehand.first_step import Learner, check_first_step, check_server_step


def validate_job(job: Job, source: str, wings_of: WingsOf = core_alone) -> AnySpec:
    """Check that a job's shards, models and algorithm exist and fit each other; return the federation.

    Args:
        source: The job's name in the error.
        wings_of: Makes the wings that the job asks for.

    Raises:
        InputError: something is missing or does not fit.
    """
    with suppress(InputError):  # ranks may run on other machines, and check it themselves
        settle_kernels(job)  # before models are made, since that computes
    spec = read_any(Path(job.shards))
    check_layout(job, spec, source)
    try:
        algorithm = job.build_algorithm().for_federation(spec)
        check_tracking(job)
        augment_of(job, spec)
        job.cohort.check(len(spec.silos))
        job.evaluate.check(splits_of(spec))
        check_clock(job, spec)
        if not isinstance(spec, VerticalSpec):
            _check_models(job, spec, algorithm)
        check_private_data(job, algorithm, spec)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    check_wings(job, spec, source, wings_of)
    return spec


def _check_models(job: Job, spec: AnySpec, algorithm: Algorithm) -> None:
    """Check that each model can be built, fits and can be trained."""
    task = algorithm.task
    for nth, table in enumerate(tables_of(job, algorithm)):
        _check_tokenizer(table, spec)
        module = models.build(table.name, table.arguments, spec.features, task.width(spec), job.seed, task)
        load_initial(module, table)
        check_model(job, spec, algorithm, module)
        check_tensors(module)
        rules_of(module, table.buffers, algorithm.personal_names(module))
        check_training(job, spec, algorithm, module, nth)


def _check_tokenizer(table: Model, spec: AnySpec) -> None:
    """See that texts became tokens by the tokenizer that lies beside a pretrained model, if there is one."""
    record, folder = encoding_of(spec.source) or {}, str(table.arguments.get("path", ""))
    file = Path(folder) / "tokenizer.json"
    if table.name != "hf-causal" or not record.get("tokenizer") or not folder or not file.is_file():
        return
    if (by := record["tokenizer"]) != sha256_of(file):
        other = "bytes" if by == "bytes" else "another tokenizer"
        what = f"the texts in the shards became tokens by {other}, not by its tokenizer.json"
        raise InputError(f"[model] path = '{folder}': {what}; cut them with --tokenizer {folder}")


def tables_of(job: Job, algorithm: Algorithm) -> list[Model]:
    """Return the table of the job's model, followed by the algorithm's further architectures."""
    return [job.model, *map(Model.model_validate, algorithm.architectures())]


def check_training(job: Job, spec: AnySpec, algorithm: Algorithm, module: nn.Module, nth: int = 0) -> None:
    """Check that silos can train a model, by a trial on made-up examples.

    Args:
        job, spec, algorithm: The training.
        module: The model.
        nth: The number of the model among the algorithm's architectures.

    Raises:
        InputError: they cannot; the line says what to do.
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
    """Check that a job's algorithm fits the layout of its shards (rows or columns).

    Raises:
        InputError: the algorithm is for the other layout.
    """
    try:
        check_vertical_data(job, job.build_algorithm(), spec)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def check_told(job: Job, spec: AnySpec) -> None:
    """Check again, at each rank, what an honest rank 0 has checked of a job; a dishonest one could send any
    job.

    Raises:
        InputError: the job fails a check.
    """
    check_as_read(job)
    algorithm = job.build_algorithm()
    check_vertical_data(job, algorithm, spec)
    check_private_data(job, algorithm.for_federation(spec), spec)


def parameters_of(job: Job, spec: AnySpec) -> int:
    """Return how many parameters of a job's model are trained and sent to the server."""
    algorithm = job.build_algorithm().for_federation(spec)
    task, table = algorithm.task, job.model
    module = models.build(
        table.name, table.arguments, spec.features, width=task.width(spec), seed=job.seed, task=task
    )
    own = algorithm.personal_names(module)
    return sum(p.numel() for name, p in module.named_parameters() if p.requires_grad and name not in own)


def augment_of(job: Job, spec: AnySpec) -> Change | None:
    """Return the augmentation of silos' batches; None without the key.

    Raises:
        InputError: there is no such augmentation, or it does not fit the examples.
    """
    changes, data = [], job.data
    if data.augment is not None:
        changes.append(load_change(data.augment, spec.features, spec.targets))
    if keys := data.warp:
        how = Warp(**{**keys, "zoom": tuple(data.zoom)})
        changes.append(load_warp(next(iter(keys)), how, spec.features, spec.targets))

    def change(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
        return functools.reduce(lambda made, one: one(made, generator), changes, batch)

    return change if changes else None


def check_model(job: Job, spec: AnySpec, algorithm: Algorithm, module: nn.Module) -> None:
    """Check that a model fits the task, the algorithm and the job's `[privacy]`.

    Raises:
        InputError: it does not fit.
    """
    algorithm.task.check(spec, module)
    algorithm.check(module, spec)
    if job.evaluate.keep_best and (algorithm.own_models or algorithm.personal_names(module)):
        what = f"'{job.algorithm['name']}' leaves a model of its own at each silo, as it is at the end"
        raise InputError(f"[evaluate] keep_best = true: {what}; leave it out")
    if is_silo_level(job) and (why := why_no_statistics(algorithm, module)):
        raise InputError(why)
    if job.privacy is not None and not is_silo_level(job):
        check_layers(module)


def splits_of(spec: AnySpec) -> set[str]:
    """Return the splits that have examples at one silo or more."""
    return {split for entry in spec.silos for split, examples in entry.examples.items() if examples}


def check_wings(job: Job, spec: AnySpec, source: str, wings_of: WingsOf) -> Sequence[Wing]:
    """Make the wings that a job asks for, run their checks, and return them.

    Raises:
        InputError: a wing is missing, or cannot do what the job asks.
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
    """Call `plan` of each wing.

    Raises:
        InputError: a wing has no plan for this job.
    """
    try:
        algorithm = job.build_algorithm().for_federation(spec)
        check_private_data(job, algorithm, spec)
        for wing in wings:
            wing.plan(spec, algorithm)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def check_layers(module: nn.Module) -> None:
    """Check that a model treats each example by itself, as `[privacy]` needs it.

    Raises:
        InputError: a layer learns statistics of batches.
    """
    norms = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
    for name, layer in module.named_modules():
        mixes = isinstance(layer, norms[0]) or getattr(layer, "track_running_stats", False)
        if isinstance(layer, norms) and mixes:
            what = (
                f"{type(layer).__name__} ('{name}') mixes examples of a batch, and keeps statistics of them"
            )
            raise InputError(f"[privacy]: {what}; use GroupNorm")
