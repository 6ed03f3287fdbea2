"""Shards and other examples that a trained model is to judge: what they are, and whether it has learned from
such."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from mpifl.common import InputError, Names, ShardError
from mpifl.data import Features, each
from mpifl.data.shards import (
    FederationSpec,
    ShardEntry,
    by_path,
    encoding_of,
    read_federation,
    read_parts,
    read_spec,
    unlike,
)
from mpifl.report.judging.trained import read_job_of
from mpifl.report.pictures import fit_of
from mpifl.report.runs import read_shards
from mpifl.run.folder import describe, read_environment, read_metrics, same_data
from mpifl.run.job import Job

FITTED = "cut the table by the spec of the training as `data-prep fit` states it"
"""What helps where a table's columns became other features than those of the training."""


@dataclass(frozen=True)
class PredictedShards:
    """The shards that are to be predicted.

    Attributes:
        folder: Where they lie.
        spec: What they have in common.
        entries: Each by the silo's name.
    """

    folder: Path
    spec: FederationSpec
    entries: dict[str, ShardEntry]


def check_fit(
    run: Path, data: Path, given: FederationSpec, taken: FederationSpec, force: bool = False
) -> None:
    """See that examples are what the model of a run has learned from.

    Args:
        data: What is predicted, for the error.
        given: What is said of it.
        taken: What is said of the training's shards.
        force: Take shards that another spec has cut; a line says so.

    Raises:
        InputError: they have another shape or other names, or another spec has cut them.
    """
    found, wanted = (each(lambda one: list(one.shape), one.features) for one in (given, taken))
    if not _fit(given, taken):
        images = isinstance(taken.features, Features) and len(taken.features.shape) == 3
        resized = "; cut images to its size by --size WIDTHxHEIGHT" if images else ""
        cut = resized if taken.feature_names is None else f"; {FITTED}"
        raise InputError(f"{data}: features of shape {found}, the model of {run} takes {wanted}{cut}")
    check_names(data, given.feature_names, taken.feature_names)
    if why := unlike(encoding_of(given.source), encoding_of(taken.source)):
        table = (encoding_of(taken.source) or {})["kind"] == "table"
        other = (
            "was cut by another spec than the training" if table else "was read otherwise than in training"
        )
        what, to_do = (
            f"{data}: {other}: {why}",
            FITTED if table else "partition it with the training's options",
        )
        if not force:
            raise InputError(f"{what}; {to_do}, or add --force")
        print(f"warning: {what}", file=sys.stderr)


def _fit(given: FederationSpec, taken: FederationSpec) -> bool:
    """Whether examples have the shape that a model takes; ragged ones may be shorter."""
    found, wanted = (by_path("x", spec.features) for spec in (given, taken))
    return found.keys() == wanted.keys() and all(
        found[path].ragged == one.ragged
        and found[path].shape[one.ragged :] == one.shape[one.ragged :]
        and (not one.ragged or found[path].shape[0] <= one.shape[0])
        for path, one in wanted.items()
    )


def check_names(data: Path, given: Sequence[str] | None, taken: Sequence[str] | None) -> None:
    """Refuse a table's columns that are called otherwise than those that a model has learned from.

    Raises:
        InputError: one is.
    """
    for column, (found, learned) in enumerate(zip(given or (), taken or (), strict=False)):
        if found != learned:
            raise InputError(f"{data}: column {column} is '{found}', the model learned '{learned}'; {FITTED}")


def check_classes(run: Path, data: Path, given: FederationSpec, taken: FederationSpec) -> None:
    """See that targets are those that the model of a run has learned.

    Raises:
        InputError: they are others, or classes have other numbers.
    """
    if given.classes != taken.classes or (given.targets is None) != (taken.targets is None):
        what = f"targets are {given.aim}, the model of {run} has learned {taken.aim}"
        raise InputError(f"{data}: {what}; cut the data as those of the training")
    for number, (one, learned) in enumerate(
        zip(given.class_names or (), taken.class_names or (), strict=False)
    ):
        if one != learned:
            what = f"class {number} is '{one}', the model has learned '{learned}'"
            raise InputError(f"{data}: {what}; cut the data as those of the training")


def shards_at(data: Path) -> PredictedShards:
    """Return the shards of a folder, or the one that is named; a site's folder has its entry alone."""
    if not data.exists():
        raise InputError(f"{data}: is not there; name a shard folder, or one shard of it")
    if not data.is_file():
        own = [*data.glob("silo_*.json")]
        alone = len(own) == 1 and not (data / "federation.json").exists() and _describes_shards(own[0])
        spec = read_spec(own[0]) if alone else read_federation(data)
        return PredictedShards(data, spec, _by_name(spec.silos))
    for beside in (data.with_name("federation.json"), data.with_suffix(".json")):
        if beside.is_file() and _describes_shards(beside):
            spec = read_spec(beside)
            entries = {**_by_name(spec.silos), **{e.name: e for e in (spec.test, spec.public) if e}}
            if named := {name: entry for name, entry in entries.items() if entry.file == data.name}:
                return PredictedShards(data.parent, spec, named)
    what = f"neither federation.json nor {data.with_suffix('.json').name} beside it says what it holds"
    to_do = "name a shard folder, as `data-prep partition` makes of any data"
    raise InputError(f"{data}: {what}; {to_do}; a table is predicted by mpifl predict RUN TABLE --out FILE")


def _describes_shards(path: Path) -> bool:
    """Tell whether a JSON file is one of shards; one of another program or command says nothing of them."""
    try:
        told = read_parts(path)
    except ShardError:
        return path.name == "federation.json"
    except OSError:
        return True
    return isinstance(told, dict) and str(told.get("format", "")).startswith("mpifl-")


def _by_name(entries: Sequence[ShardEntry]) -> dict[str, ShardEntry]:
    names = Names([entry.name for entry in entries])
    return {names[i]: entry for i, entry in enumerate(entries)}


def spec_of(run: Path, job: Job) -> FederationSpec | None:
    """Return what the run was trained on, by its shards or else by what it keeps of their description; None
    where neither can be read here."""
    environment = read_environment(run)
    with contextlib.suppress(InputError):
        _, spec = read_shards(job.shards, environment)
        if isinstance(spec, FederationSpec) and same_data(environment.get("data", {}), describe(spec)):
            return spec
    with contextlib.suppress(ValidationError):
        return FederationSpec.model_validate(environment.get("federation"))
    return None


def learned_from(
    run: Path, trusted: Collection[str] = (), threshold: float | None = None
) -> tuple[Job, FederationSpec]:
    """Return a run's job, perhaps with another threshold, and what is known of the training's shards.

    Raises:
        InputError: there is no run, or nothing is known of them here.
    """
    job = read_job_of(run, trusted, threshold=threshold)
    if (spec := spec_of(run, job)) is None:
        what = "its shards cannot be read here, and it keeps no description of them"
        raise InputError(f"{run}: {what}; predict where they lie, or name shards by --data")
    return job, spec


def columns_seen(run: Path) -> dict[str, tuple[float, float]]:
    """Return mean and deviation of each column of the training that its own sums told, as those of a
    regression do; {} where they tell none."""
    told = fit_of(read_metrics(run)).get("columns", {})
    return {name: (float(mean), float(by)) for name, (mean, by) in told.items()}
