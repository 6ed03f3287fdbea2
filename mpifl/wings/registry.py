"""All wings, by what a job calls for. Commands and scripting hand them to a training; the core knows none."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from mpifl.common import InputError
from mpifl.run.job import Job
from mpifl.training import Wing

WINGS = ("compression", "robust", "attacks")
"""In the order in which they act. Each is a folder, whose face has `wing(job)`."""


def wings_of(job: Job) -> Sequence[Wing]:
    """Return the wings that a job asks for, imported now.

    Raises:
        InputError: a wing is not installed.
    """
    asked = job.wings
    return [_made(name, asked[name], job) for name in WINGS if name in asked]


def _made(name: str, key: str, job: Job) -> Wing:
    try:
        module = importlib.import_module(f"mpifl.wings.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"mpifl.wings.{name}":
            raise
        raise InputError(f"{key}: is the work of the wing '{name}', which is not here") from None
    made: Wing = module.wing(job)
    return made
