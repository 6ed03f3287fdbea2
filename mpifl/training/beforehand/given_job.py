"""A job as it is given to a training: a file, tables, or a `Job`."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from mpifl.common import InputError, ShardError, Table, wrong_in
from mpifl.run.job import Job, check_job, read_job

Given: TypeAlias = Path | Table | Job


def resolved(given: Given, overrides: tuple[str, ...]) -> Job:
    """Return the job with every default filled in.

    Raises:
        InputError: a key is wrong.
    """
    if isinstance(given, Path):
        return read_job(given, overrides)
    table = given.model_dump(mode="json", exclude_none=True) if isinstance(given, Job) else given
    if wrong := wrong_in(table):
        raise InputError(f"{source_of(given)}: {wrong}")
    return check_job(table, source_of(given))


def source_of(given: Given) -> str:
    """Return the job's name in error messages."""
    return str(given) if isinstance(given, Path) else "the job"


def told_of(error: InputError, given: Given) -> str:
    """Return an error's text with the job's name; a shard's error names its own file."""
    return str(error) if isinstance(error, ShardError) else f"{source_of(given)}: {error}"
