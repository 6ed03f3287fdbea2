"""The parts of a split network, the top and the silos' bottoms: building, loading and checks."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, rng
from mpifl.data import Features
from mpifl.data.shards import VerticalSpec
from mpifl.learning import models
from mpifl.learning.tasks import tensor_of
from mpifl.run.folder import MADE_WITH, load_initial, load_weights, metadata_of
from mpifl.run.job import Job, check_bottom
from mpifl.run.job.tables import Model
from mpifl.training.beforehand import Learner, check_first_step


def top_of(job: Job, spec: VerticalSpec, algorithm: Algorithm) -> nn.Module:
    """Build the top. Its inputs are the merged activations, and it is as wide as the task's outputs.

    Raises:
        InputError: there is no such model, or it does not fit.
    """
    assert job.split is not None
    task, width = algorithm.task, algorithm.task.width(spec)
    merged = job.split.merged(len(spec.silos))
    if job.split.top == "none":
        if merged != width:
            what = f"cut_width = {merged}: with top = 'none' lines are the outputs; the task has {width}"
            raise InputError(f"[split] {what}; use cut_width = {width}, or a top")
        return models.Bias(width)
    table = Model.model_validate(job.split.top)
    where = "[split] top:"
    module = models.build(
        table.name, table.arguments, _merged(job, spec), width, seed=job.seed, task=task, where=where
    )
    load_initial(module, table)
    task.check(spec, module)
    return module


def bottom_of(job: Job, spec: VerticalSpec, silo: int) -> nn.Module:
    """Build a silo's bottom. Its inputs are the silo's columns, and it is as wide as the silo's activations.

    Raises:
        InputError: there is no such model, or it does not fit.
    """
    assert job.split is not None
    own = job.split.bottoms.get(str(silo))
    table = job.model if own is None else Model.model_validate(own)
    width = job.split.widths(len(spec.silos))[silo]
    where = "[model]" if own is None else f"[split] bottoms.{silo}:"
    seed = rng.derive(job.seed, "bottom", silo)
    features = spec.silos[silo].features
    module = models.build(table.name, table.arguments, features, width, seed, where=where)
    load_initial(module, table)
    return module


def load_part(module: nn.Module, path: Path, top: str = "") -> None:
    """Load the weights of one part of a trained network.

    Args:
        module: The part.
        path: The file of its weights.
        top: The sha256 of the top with which the part must have been trained; "" accepts any. A file that
            does not name its top is accepted.

    Raises:
        InputError: the file is missing, of another model, or trained with another top.
    """
    if not path.exists():
        what = "is not there, and half a network is not a model"
        raise InputError(f"{path}: {what}; have all parties answer together, each with its own half")
    load_weights(module, path, str(path))
    if top and (other := metadata_of(path).get(MADE_WITH, top)) != top:
        what = f"was trained with another top, {other[:12]}, than model.safetensors at rank 0, {top[:12]}"
        raise InputError(f"{path}: {what}; have each party bring its half of one training")


def check_parts(job: Job, spec: VerticalSpec, algorithm: Algorithm) -> None:
    """Check that the top and all bottoms can be built, fit, and can train on the batches of a round.

    Raises:
        InputError: a part cannot be built, does not fit, or cannot be trained.
    """
    check_part(job, spec, algorithm, top_of(job, spec, algorithm))
    for entry in spec.silos:
        bottom = checked_bottom(job, spec, algorithm, entry.silo)
        check_part(job, spec, algorithm, bottom, entry.silo)


def check_part(
    job: Job, spec: VerticalSpec, algorithm: Algorithm, half: nn.Module, silo: int | None = None
) -> None:
    """Check that a silo's bottom, or the top if `silo` is None, can be trained on each batch of a round.

    Raises:
        InputError: it cannot; the error says what to change.
    """
    assert job.split is not None
    task = algorithm.task
    if silo is None:
        where, features, own = "[split] top", _merged(job, spec), None
        aim = (spec.classes, spec.targets)
    else:
        where = f"[split] bottoms.{silo}" if str(silo) in job.split.bottoms else "[model]"
        features, aim, own = spec.silos[silo].features, (1, None), _energy
    learner = Learner(
        where=where,
        module=half,
        features=features,
        aim=aim,
        width=task.width(spec),
        local=job.local,
        remake=functools.partial(_made, job, spec, algorithm, silo),
        task=task,
        own=own,
        apart=True,
        rounds=job.rounds,
    )
    if silo is None or any(p.requires_grad for p in half.parameters()):
        check_first_step(learner, [spec.rows["train"]])


def _energy(module: Any, x: Any, y: Any) -> Tensor:
    """Return a loss for a bottom's trial step. Any loss will do: the real gradient comes from the top."""
    loss: Tensor = tensor_of(module(x)).square().mean()
    return loss


def _made(job: Job, spec: VerticalSpec, algorithm: Algorithm, silo: int | None) -> nn.Module:
    return top_of(job, spec, algorithm) if silo is None else bottom_of(job, spec, silo)


def _merged(job: Job, spec: VerticalSpec) -> Features:
    """Return the top's features: the merged activations of a row."""
    assert job.split is not None
    return Features(shape=(job.split.merged(len(spec.silos)),), dtype="float32")


def checked_bottom(job: Job, spec: VerticalSpec, algorithm: Algorithm, silo: int) -> nn.Module:
    """Build a silo's bottom, and raise InputError if it cannot take the algorithm's `local_steps`."""
    module = bottom_of(job, spec, silo)
    check_bottom(getattr(algorithm, "local_steps", 1), silo, module)
    return module
