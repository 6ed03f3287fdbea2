"""The model of a finished run, scored again."""

from __future__ import annotations

from pathlib import Path

from mpifl.errors import InputError


def evaluate_run(run: Path) -> None:
    """Score the model of a run on its shard folder's test set and print the figures.

    Raises:
        InputError: there is no model, or no test set.
    """
    from safetensors.torch import load_file

    from mpifl import models
    from mpifl.batches import Batches
    from mpifl.flat import FlatModel
    from mpifl.job import read_job
    from mpifl.shards import open_shard, read_federation
    from mpifl.silo import evaluate

    job = read_job(run / "job.toml")
    spec = read_federation(Path(job.shards))
    if spec.test is None:
        raise InputError(f"{job.shards}/federation.json: has no test set; partition with a source that has one")
    path = run / "model.safetensors"
    if not path.exists():
        raise InputError(f"{path}: is not there; the run has not come to its end (mpifl train ... --resume)")
    module = models.build(job.model.name, job.model.arguments, spec.features, spec.classes, job.seed)
    module.load_state_dict(load_file(path))
    model = FlatModel(module)
    test = open_shard(Path(job.shards), spec.test, spec)["test"]
    score = evaluate(model, model.trained.clone(), Batches(test, spec.features, model.device))
    print(f"test loss {score.loss:.4f}, test accuracy {score.accuracy:.2%}, {score.examples} examples")
