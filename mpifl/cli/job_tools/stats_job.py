"""The job that makes a table of all rows of a folder of shards."""

from __future__ import annotations

from pathlib import Path

from mpifl.common import InputError, Table
from mpifl.data.shards import read_federation
from mpifl.learning.tasks import Survival, TaskFacts

DESCRIBED = ("classification", "binary", "multilabel", "regression")


def job_of_table(algorithm: str, shards: Path, masks: bool, keys: Table) -> Table:
    """Return the job.

    Args:
        algorithm: What makes the table.
        shards: The folder of the shards.
        masks: Whether sums are masked.
        keys: Further keys of `[algorithm]`.

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
    return job | ({"security": {}} if masks else {})
