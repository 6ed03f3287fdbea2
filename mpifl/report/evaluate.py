"""The model of a finished run, scored again."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path

from torch import nn

from mpifl import models
from mpifl.common import InputError, written_after
from mpifl.data import Batches, FederationSpec, open_shard
from mpifl.report.data import read_shards
from mpifl.report.runs import read_run
from mpifl.run import Job, describe, load_weights, read_environment, read_kept, read_metrics, same_data
from mpifl.silo import FlatModel, evaluate

GO_ON = "mpifl train ... --resume"


def evaluate_run(run: Path, trusted: Collection[str] = ()) -> None:
    """Score the model of a run on its shard folder's test set and print the figures.

    Args:
        run: The run folder.
        trusted: The plug-ins that its job may import.

    Raises:
        InputError: there is no model of the run's end, no test set, the shards are others, or it needs code
            that is not trusted.
    """
    job, environment = read_kept(run / "job.toml", trusted), read_environment(run)
    _check_plugins(run, job, trusted)
    folder, spec = read_shards(job.shards, environment)
    if spec.test is None:
        raise InputError(f"{folder}/federation.json: has no test set; partition with a source that has one")
    if not same_data(environment.get("data", {}), describe(spec)):
        what = f"the shards at {folder} are not those that it was trained on"
        raise InputError(f"{run}: {what}; put its own there")
    model = FlatModel(_module(run, job, spec))
    test = open_shard(folder, spec.test, spec)["test"]
    algorithm = job.build_algorithm().for_federation(spec)
    batches = Batches(test, spec.features, model.device)
    score = evaluate(model, model.trained.clone(), batches, algorithm.task, algorithm.own_objective)
    found = [f"test {name} {info.write(score.metrics[name])}" for name, info in algorithm.task.infos.items()]
    print(", ".join([f"test loss {score.loss:.4f}", *found, f"{score.examples} examples"]))


def _check_plugins(run: Path, job: Job, trusted: Collection[str]) -> None:
    """See that the user trusts all code that is to be imported, and that none is the run folder's own."""
    for table, name in job.plugins.items():
        if name not in trusted:
            table, _, key = table.partition(".")
            named = f"{run}/job.toml: [{table}] {key or 'name'} = '{name}'"
            what = f"{named}: is code that evaluating would import and run"
            raise InputError(f"{what}; name it by --trust {shlex.quote(name)} if you trust it")
    if job.plugins and Path.cwd().is_relative_to(run.resolve()):
        what = "modules would be imported from the run folder itself"
        raise InputError(f"{run}: {what}; evaluate from another folder")


def _module(run: Path, job: Job, spec: FederationSpec) -> nn.Module:
    """Return the module with the run's final weights."""
    path = run / "model.safetensors"
    if not path.exists():
        raise InputError(f"{path}: is not there; the run has not come to its end ({GO_ON})")
    if not _is_of_the_end(run, job, path):
        raise InputError(f"{path}: is of an earlier end; the run has not come to its own ({GO_ON})")
    algorithm, named = job.build_algorithm().for_federation(spec), (job.model.name, job.model.arguments)
    width = algorithm.task.width(spec)
    module = models.build(*named, spec.features, width, job.seed, algorithm.task)
    if personal := sorted(algorithm.personal_names(module)):
        whose = f"{job.algorithm['name']} leaves {', '.join(personal)} at the silos"
        scores = f"metrics.jsonl has their {algorithm.task.main_metric.name}"
        raise InputError(f"{run}: {whose}, which have a model each, in personal/; {scores}")
    load_weights(module, path, str(path))
    return module


def _is_of_the_end(run: Path, job: Job, model: Path) -> bool:
    """Whether the model is of the job's last round; without metrics, whether it is newer than the job."""
    recorded = job.tracking.jsonl and read_metrics(run)
    return read_run(run).finished if recorded else written_after(model, run / "job.toml")
