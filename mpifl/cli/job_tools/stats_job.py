"""The job that makes a table of all rows of a folder of shards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from mpifl.common import InputError, Table
from mpifl.data.shards import read_federation
from mpifl.learning.tasks import Survival, TaskFacts
from mpifl.run.job import check_job
from mpifl.wings.privacy import noise_for

DESCRIBED = ("classification", "binary", "multilabel", "regression")


def job_of_table(algorithm: str, shards: Path, masks: bool, keys: Table, privacy: Table) -> Table:
    """Return the job.

    Args:
        algorithm: What makes the table.
        shards: The folder of the shards.
        masks: Whether sums are masked.
        keys: Further keys of `[algorithm]`.
        privacy: The table `[privacy]`; {} for none.

    Raises:
        InputError: the folder cannot be read, or has targets that the algorithm does not take.
    """
    facts = TaskFacts.of(read_federation(shards))
    if algorithm == "kaplanmeier":
        task, what = "survival", "curves take a time and an event, as a label of kind = 'survival' has them"
        fits = Survival().fits(facts)
    else:
        task, what = facts.usual, "the table takes a class, yes or no, or values for each example"
        fits = task in DESCRIBED
    if not fits:
        raise InputError(f"{shards}: targets are {facts.told}; {what}")
    job: Table = {
        "name": algorithm,
        "shards": str(shards),
        "rounds": 1,
        "device": "cpu",
        "model": {"name": "logreg"},
        "task": {"name": task},
        "algorithm": {"name": algorithm, **keys},
        "tracking": {"console": False},
    }
    return job | ({"security": {}} if masks else {}) | ({"privacy": privacy} if privacy else {})


def check_table(job: Table) -> None:
    """Check a job of a table where its ranks are yet to start.

    Raises:
        InputError: a key is wrong, or the shards have no such column.
    """
    algorithm = check_job(job, "the job").build_algorithm()
    algorithm.for_federation(read_federation(Path(job["shards"])))


def keys_of_noised(bounds: Sequence[str], categories: Sequence[str], bins: int | None) -> Table:
    """Return the keys of `[algorithm]` of a table with noise.

    Args:
        bounds: Columns with their bounds, each as NAME=LOWER:UPPER.

    Raises:
        InputError: bounds are not written so.
    """
    found = dict[str, list[float]]()
    for given in bounds:
        name, _, ends = given.rpartition("=")
        try:
            lower, upper = map(float, ends.split(":"))
        except ValueError:
            what = "is not a column with its bounds; write it as age=18:90"
            raise InputError(f"--bounds {given}: {what}") from None
        if not name or name in found:
            raise InputError(f"--bounds {given}: names no column, or one twice; write it as age=18:90")
        found[name] = [lower, upper]
    keys: Table = {"bounds": found, "categories": [*categories]}
    return keys | ({} if bins is None else {"bins": bins})


def privacy_of(epsilon: float, delta: float | None) -> Table:
    """Return `[privacy]` with the least noise by which a table costs at most (epsilon, delta).

    It has no budget: what a site spends over all jobs is limited by its own.

    Raises:
        InputError: delta is missing, or no noise is enough.
    """
    if delta is None:
        raise InputError("--delta: not given; --epsilon needs it, at most 1 / the rows of the largest silo")
    if not 0 < delta < 1 or not 0 < epsilon < math.inf:
        raise InputError(f"--epsilon {epsilon:g} --delta {delta:g}: use numbers above 0, and delta below 1")
    return {"noise": max(noise_for(epsilon, delta, 1.0, 1), 0.01), "delta": delta}
