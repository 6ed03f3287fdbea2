"""A run that was trained: its model, and the shards that it is of."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from torch import nn

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, check_there, choices, sha256_of, written_after
from mpifl.data.batches import Batches
from mpifl.data.shards import FederationSpec, Split
from mpifl.learning import models
from mpifl.learning.tasks import Task
from mpifl.report.judging import weights_told
from mpifl.report.runs import A_RUN, read_run, read_shards
from mpifl.run.folder import (
    MADE_WITH,
    describe,
    load_final,
    metadata_of,
    number,
    read_environment,
    read_metrics,
    round_of,
    same_data,
)
from mpifl.run.job import Job, judged_otherwise, read_kept
from mpifl.silo import Score, evaluate
from mpifl.silo.parameters import FlatModel

GO_ON = "mpifl train ... --resume"
WHICH = {
    "model": "the best",
    "last": "the last",
    "best": "the best so far; the run has not come to its end",
}
"""What the models of a run's files are, where the files tell their rounds."""


class OwnModel(NamedTuple):
    """The model of its own that a silo of this name has at the end."""

    name: str


Which: TypeAlias = bool | Literal["initial"] | OwnModel
"""Which of a run's models is asked for: the run's own (False), that of the last round (True), the one that
the training began with, or a silo's own."""
NAMED = 3
"""Personal parameters that a line names: FedBN leaves hundreds."""


@dataclass(frozen=True)
class Trained:
    """A run, and the shards that it was trained on.

    Attributes:
        run: The run folder.
        job: Its job.
        folder: The shard folder.
        spec: What that holds.
        counts: Whether scores count answers, too, as `answers_told` tells them.
    """

    run: Path
    job: Job
    folder: Path
    spec: FederationSpec
    counts: bool = False

    @cached_property
    def algorithm(self) -> Algorithm:
        """The job's algorithm, told of the federation."""
        return self.job.build_algorithm().for_federation(self.spec)

    @cached_property
    def task(self) -> Task:
        """What the model has learned."""
        return self.algorithm.task.counting_answers() if self.counts else self.algorithm.task

    def model(self, last: Which = False) -> FlatModel:
        """Return the run's model, or another that is asked for.

        Raises:
            InputError: there is none, or silos own a part of it.
        """
        return FlatModel(module_of(self.run, self.job, self.spec, last))

    def evaluate(self, model: FlatModel, split: Split) -> Score:
        """Score a model on a split of one of the shards."""
        batches = Batches(split, self.spec.features, model.device)
        how = self.task, self.algorithm.own_objective, self.job.evaluate.batch_size
        return evaluate(model, model.trained.clone(), batches, *how)


def read_trained(
    run: Path,
    trusted: Collection[str] = (),
    counts: bool = False,
    metrics: Sequence[str] = (),
    threshold: float | None = None,
) -> Trained:
    """Read a run's job, and what its shard folder holds.

    Args:
        trusted: The plug-ins that its job may import.
        counts: Whether scores are to count answers.
        metrics: Names of metrics that are to judge it besides those of its job.
        threshold: The probability above which it answers yes; by default that of its job.

    Raises:
        InputError: there is no run, the shards are others, or it needs code that is not trusted.
    """
    job, environment = read_job_of(run, trusted, metrics, threshold), read_environment(run)
    if job.split is not None:
        what = "is of a network that is split over silos, of which each has a part"
        raise InputError(f"{run}: {what}; have all answer together by mpifl evaluate or mpifl predict")
    folder, spec = read_shards(job.shards, environment)
    assert isinstance(spec, FederationSpec)
    if not same_data(environment.get("data", {}), describe(spec)):
        what = f"the shards at {folder} are not those that it was trained on"
        raise InputError(f"{run}: {what}; put its own there")
    return Trained(run, job, folder, spec, counts)


NO_FOLDER = ("is not there", "is not a folder")


def read_job_of(
    run: Path, trusted: Collection[str], metrics: Sequence[str] = (), threshold: float | None = None
) -> Job:
    """Return the job of a run, all of whose code the user trusts, with further metrics and another threshold.

    Raises:
        InputError: there is none, it has trained no model, it names other code, or its task has no such
            metric.
    """
    if not (run / "job.toml").exists():
        what = "is not a run: it has no job.toml" if run.is_dir() else NO_FOLDER[run.exists()]
        raise InputError(f"{run}: {what}; {A_RUN}")
    job = read_kept(run / "job.toml", trusted)
    check_plugins(run, job, trusted)
    if no_model := job.build_algorithm().no_model:
        raise InputError(
            f"{run}: has no model: '{job.algorithm['name']}' {no_model.replace('RUN', str(run))}"
        )
    return judged_otherwise(_from_its_start(run, job), metrics, threshold)


def _from_its_start(run: Path, job: Job) -> Job:
    """Return a job whose model's files are found from the folder in which the run was started, where they are
    not from here."""
    start, model = Path(read_environment(run).get("directory", ".")), job.model
    named = {"weights": model.weights, "path": model.arguments.get("path")}
    led = {
        key: str(start / path) for key, path in named.items()
        if isinstance(path, str) and not Path(path).exists() and (start / path).exists()
    }  # fmt: skip
    return job.model_copy(update={"model": model.model_copy(update=led)}) if led else job


def module_of(run: Path, job: Job, spec: FederationSpec, last: Which = False) -> nn.Module:
    """Return the module with the weights of the run's model, or of another that is asked for; say if it is
    not what silos use."""
    path = model_file(run, job, last)
    algorithm, table = job.build_algorithm().for_federation(spec), job.model
    task, width = algorithm.task, algorithm.task.width(spec)
    module = models.build(table.name, table.arguments, spec.features, width, seed=job.seed, task=task)
    if isinstance(last, OwnModel):
        load_final(module, job.model, path, run)
        return module
    if personal := sorted(algorithm.personal_names(module)):
        more = f" and {len(personal) - NAMED:,} more parameters" if len(personal) > NAMED else ""
        whose = f"{job.algorithm['name']} leaves {', '.join(personal[:NAMED])}{more} at the silos"
        scores = f"metrics.jsonl has their {algorithm.task.main_metric.name}"
        where = f"in personal/{run.name} of its site's folder" if job.secure else "in personal/"
        raise InputError(f"{run}: {whose}, which have a model each, {where}; name a --silo; {scores}")
    load_final(module, job.model, path)
    if algorithm.own_models:
        what = (
            f"this is the server's model; rounds have scored what {job.algorithm['name']} makes for each silo"
        )
        print(f"note: {run}: {what}", file=sys.stderr)
    return module


def model_file(run: Path, job: Job, last: Which = False) -> Path:
    """Return the file of a run's model: of its best round where that is kept, else of its last one.

    Args:
        last: Return the model of the last round in any case, the one of the beginning, or a silo's own.

    Raises:
        InputError: the run has not come to its end, and keeps no best model, or the last one is asked for; a
            silo has no model of its own.
    """
    if isinstance(last, OwnModel):
        return _own_model(run, job, last.name, _end_model(run, job))
    return _end_model(run, job, last)


def _end_model(run: Path, job: Job, last: bool | Literal["initial"] = False) -> Path:
    """Return the file of the model of a run's end, or of its beginning; see `model_file`."""
    if last == "initial":
        check_there(begun := run / "initial.safetensors")
        return begun
    path, other, best = (run / f"{name}.safetensors" for name in ("model", "last", "best"))
    if path.exists() and _is_of_the_end(run, job, path):
        return other if last and other.exists() else path
    if job.evaluate.keeps_best and best.exists() and not last:
        _check_best(run, best)
        return best
    if not path.exists():
        raise InputError(f"{path}: is not there; the run has not come to its end ({GO_ON})")
    raise InputError(f"{path}: is of an earlier end; the run has not come to its own ({GO_ON})")


def _own_model(run: Path, job: Job, name: str, model: Path) -> Path:
    """Return the file of a silo's own model, which was made with the `model` of all.

    Raises:
        InputError: there is no such silo, it has none, or the file is not here or of another end.
    """
    where, number, folder = f"--silo {name}", _number_of(run, name), run / "personal"
    if job.secure:
        if not (site := os.environ.get("MPIFL_SITE")):
            what = "it lies in its site's folder, since sums were masked"
            raise InputError(f"{where}: {what}; set MPIFL_SITE at that site")
        kept = sorted(Path(site, "personal").glob(f"{run.name}-*"))
        folder = kept[-1] if len(kept) == 1 else Path(site, "personal", run.name)
    path = folder / f"silo_{number:04d}.safetensors"
    if not path.exists():
        what = f"{path} is not there: '{job.algorithm['name']}' leaves no model of a silo's own"
        raise InputError(f"{where}: {what}, or it lies where the ranks of that silo have run")
    if metadata_of(path).get(MADE_WITH) != sha256_of(model):
        raise InputError(f"{where}: {path} is not of the end that {model} is of ({GO_ON})")
    return path


def _number_of(run: Path, name: str) -> int:
    """Return the number of a silo that goes by its name, or by its number where silos have none."""
    names: list[str] = read_environment(run).get("silos") or []
    if name not in names and (names or not name.isdecimal()):
        rest = choices(name, names) if names else "silos go by their numbers"
        raise InputError(f"--silo {name}: is not a silo of {run}; {rest}")
    return names.index(name) if names else int(name)


def _check_best(run: Path, path: Path) -> None:
    records, round = read_metrics(run), round_of(path)
    told = [int(best) for record in records if (best := number(record, "best_round"))]
    if told and told[-1] != round <= records[-1]["round"] and round:  # a later one is yet to be recorded
        raise InputError(f"{path}: is of round {round}, and round {told[-1]} was the best ({GO_ON})")


def told_model(run: Path, job: Job, last: Which = False) -> dict[str, Any]:
    """Return the name of a run's model and its round, if the file tells it, and print them."""
    path = model_file(run, job, last)
    tell_weights(job)
    if last == "initial":
        print(f"model: {path}, before the training")
    if isinstance(last, OwnModel):
        print(f"model: {path}, of silo {last.name}")
        return {"model": path.name, "silo": last.name}
    if not (round := round_of(path)):
        return {"model": path.name}
    print(f"model: {path}, of round {round:,}, {WHICH[path.stem]}")
    return {"model": path.name, "model_round": round}


def tell_weights(job: Job) -> None:
    """Print what weights of a loss mean for the probabilities of a job's model, if it has some."""
    if said := weights_told(job.task.get("weights")):
        print(f"note: {said}")


def check_plugins(run: Path, job: Job, trusted: Collection[str]) -> None:
    """See that the user trusts all code that is to be imported, and that none is the run folder's own.

    Raises:
        InputError: it names other code.
    """
    if asked := {where: name for where, name in job.plugins.items() if name not in trusted}:
        places = [(where.partition("."), name) for where, name in asked.items()]
        named = " and ".join(f"[{table}] {key or 'name'} = '{name}'" for (table, _, key), name in places)
        what = f"{run}/job.toml: {named}: is code that this command would import and run"
        words = " ".join(f"--trust {shlex.quote(name)}" for name in dict.fromkeys(asked.values()))
        raise InputError(f"{what}; name it by {words} if you trust it")
    if job.plugins and Path.cwd().is_relative_to(run.resolve()):
        what = "modules would be imported from the run folder itself"
        raise InputError(f"{run}: {what}; start the command in another folder")


def _is_of_the_end(run: Path, job: Job, model: Path) -> bool:
    """Whether the model is of the job's last round; without metrics, whether it is newer than the job."""
    recorded = job.tracking.jsonl and read_metrics(run)
    return read_run(run).finished if recorded else written_after(model, run / "job.toml")
