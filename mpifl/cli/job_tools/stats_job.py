"""The job that makes the table of who is in a folder of shards."""

from __future__ import annotations

from pathlib import Path

from mpifl.common import InputError, Table
from mpifl.data.shards import read_federation
from mpifl.learning.tasks import TaskFacts

TAKEN = ("classification", "binary", "multilabel", "regression")


def job_of_table(shards: Path, masks: bool, keys: Table) -> Table:
    """Return the job.

    Args:
        shards: The folder of the shards.
        masks: Whether sums are masked.
        keys: Further keys of `[algorithm]`.

    Raises:
        InputError: the folder cannot be read, or has targets that are not described.
    """
    facts = TaskFacts.of(read_federation(shards))
    if facts.usual not in TAKEN:
        what = "the table takes a class, yes or no, or values for each example"
        raise InputError(f"{shards}: targets are {facts.told}; {what}")
    job: Table = {
        "name": "tableone",
        "shards": str(shards),
        "rounds": 1,
        "device": "cpu",
        "model": {"name": "logreg"},
        "task": {"name": facts.usual},
        "algorithm": {"name": "tableone", **keys},
        "tracking": {"console": False},
    }
    return job | ({"security": {}} if masks else {})
