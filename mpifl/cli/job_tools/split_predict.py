"""`mpifl predict` and `mpifl evaluate` for a run with a split network: all parties work together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpifl.common import InputError, choices
from mpifl.data import rows
from mpifl.data.shards import SPLITS, VerticalSpec, open_vertical, read_vertical
from mpifl.report.judging import (
    answered,
    as_record,
    check_asked,
    check_names,
    check_plugins,
    model_file,
    read_job_of,
    table_of,
    tell_score,
    tell_threshold,
    tell_weights,
    write_figures,
)
from mpifl.report.runs import read_shards
from mpifl.run.folder import describe, read_environment, same_data
from mpifl.run.job import Job
from mpifl.wings.split import Network, all_together
from mpifl.wire import Transport


def evaluate_together(
    run: Path,
    transport: Transport,
    trusted: Collection[str] = (),
    file: Path | None = None,
    split: str = "test",
    metrics: Sequence[str] = (),
    threshold: float | None = None,
) -> None:
    """Score the split network of a run on a split of the parties' rows, and print the figures on rank 0.

    Args:
        run: The run folder.
        transport: The world; all of its ranks call this, and rank 0's arguments count.
        trusted: The plug-ins that this rank may import for the job.
        file: A JSON file to write, or None.
        split: The split of the rows.
        metrics: Further metrics by which it is judged.
        threshold: The probability above which it answers yes; by default that of its job.

    Raises:
        InputError: on all ranks if the run, a part of the network or a shard is missing or wrong on any.
    """

    def plan() -> tuple[Job, VerticalSpec, Path]:
        job, folder, spec = _trained_on(run, trusted, metrics, threshold)
        if not spec.rows.get(split):
            raise InputError(
                f"{folder}: has no rows of a split '{split}'; {choices(split, spec.rows, 'it has')}"
            )
        tell_weights(job)
        return job.model_copy(update={"shards": str(folder)}), spec, run

    with all_together(transport, plan, lambda job: check_plugins(run, job, trusted)) as network:
        if network is not None and (score := network.score(split)) is not None:
            task = network.algorithm.task
            tell_score(score, split, task.infos)
            tell_threshold(task)
            write_figures(
                file, {"run": str(run), "model": "model.safetensors", split: as_record(score, task)}
            )


def predict_together(
    run: Path,
    data: Path,
    out: Path,
    transport: Transport,
    trusted: Collection[str] = (),
    split: str | None = None,
    threshold: float | None = None,
) -> None:
    """Predict the rows of a vertical folder with all parties; rank 0 writes the table.

    Args:
        run: The run folder; each party's own has its bottom in `personal/`.
        data: The shard folder, where each party has its own shard.
        out: The file, `.parquet`, `.csv` or `.npz`.
        transport: The world; all of its ranks call this, and rank 0's arguments count.
        trusted: The plug-ins that this rank may import for the job.
        split: Predict only this split; by default all splits.
        threshold: The probability above which it answers yes; by default that of its job.

    Raises:
        InputError: on all ranks if the run, a part of the network or a shard is missing or wrong on any, or
            the file cannot be written.
    """

    def plan() -> tuple[Job, VerticalSpec, Path]:
        check_asked(out, split)
        if data.is_file():
            what = "is one party's shard, and all parties answer together"
            raise InputError(f"--data {data}: {what}; name the shard folder")
        job, spec = read_job_of(run, trusted, threshold=threshold), read_vertical(data)
        model_file(run, job)
        _check_columns(run, job, data, spec)
        tell_weights(job)
        return job.model_copy(update={"shards": str(data)}), spec, run

    with all_together(transport, plan, lambda job: check_plugins(run, job, trusted)) as network:
        if network is not None:
            _write(network, data, out, split)


def _trained_on(
    run: Path, trusted: Collection[str], metrics: Sequence[str], threshold: float | None
) -> tuple[Job, Path, VerticalSpec]:
    """Return the job of a finished run, and the shards that it was trained on."""
    job, environment = read_job_of(run, trusted, metrics, threshold), read_environment(run)
    model_file(run, job)
    folder, spec = read_shards(job.shards, environment)
    if not isinstance(spec, VerticalSpec) or not same_data(environment.get("data", {}), describe(spec)):
        what = f"the shards at {folder} are not those that it was trained on"
        raise InputError(f"{run}: {what}; put its own there")
    near = Path(job.shards)
    return job, near if (near / "federation.json").exists() else folder, spec


def _check_columns(run: Path, job: Job, data: Path, spec: VerticalSpec) -> None:
    """Check that silos have the same columns as in training, if the training's shards can be read here."""
    try:
        _, trained = read_shards(job.shards, read_environment(run))
    except InputError:
        return
    if not isinstance(trained, VerticalSpec) or len(trained.silos) != len(spec.silos):
        raise InputError(f"{data}: has {len(spec.silos)} silos, {run} was trained with {len(trained.silos)}")
    for one, other in zip(spec.silos, trained.silos, strict=True):
        if one.columns != other.columns or one.features != other.features:
            what = f"silo {one.silo} has other columns than {run} was trained on"
            raise InputError(f"{data}: {what}; give each party those that it had")
    check_names(data, spec.feature_names, trained.feature_names)
    for what in ("holder", "classes", "class_names"):
        if (found := getattr(spec, what)) != (learned := getattr(trained, what)):
            raise InputError(f"{data}: has {what} = {found}, {run} was trained with {learned}")


def _write(network: Network, data: Path, out: Path, split: str | None) -> None:
    """Write the network's predictions of each row, with the row's number."""
    spec, task = network.spec, network.algorithm.task
    held = open_vertical(data, spec.silos[spec.holder], spec, checksum=False)
    with table_of(out, data, split) as append:
        for name, rows_held in held.items():
            if split not in (None, name) or not len(rows_held):
                continue
            at = 0

            def take(outputs: Any, y: Any, name: str = name, ids: np.ndarray = rows_held.id) -> None:
                nonlocal at
                many = rows(y)
                about = {
                    "split": np.full(many, name, f"U{max(map(len, SPLITS))}"),
                    "id": np.array(ids[at : at + many]),
                }
                append({**about, **answered(task.predict(outputs), y, task, spec)})
                at += many

            network.answer(name, take)
