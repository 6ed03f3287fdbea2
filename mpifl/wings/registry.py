"""The list of all wings, and the ones that a job asks for. The core itself imports no wing."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence

from mpifl.common import InputError
from mpifl.run.job import Job
from mpifl.training import Wing

ALWAYS = "fast"
"""The wing that takes part in every job if it is installed: it makes steps faster."""
WINGS = (
    "site",
    "dpsgd",
    ALWAYS,
    "compression",
    "scoring",
    "masked",
    "robust",
    "attacks",
    "split",
    "analysis",
)
"""The wings, in the order in which they act. Each is a folder whose face has `wing(job)`."""


def wings_of(job: Job) -> Sequence[Wing]:
    """Import and return the wings that a job asks for.

    Raises:
        InputError: a wing is not installed.
    """
    asked = job.wings
    if unknown := [name for name in asked if name not in WINGS]:
        what = f"is the work of the wing '{unknown[0]}', which the registry of wings does not list"
        raise InputError(f"{asked[unknown[0]]}: {what}")
    if importlib.util.find_spec(f"mpifl.wings.{ALWAYS}"):
        asked.setdefault(ALWAYS, "")
    return [_made(name, asked[name], job) for name in WINGS if name in asked]


def _made(name: str, key: str, job: Job) -> Wing:
    try:
        module = importlib.import_module(f"mpifl.wings.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"mpifl.wings.{name}":
            raise
        raise InputError(f"{key}: is the work of the wing '{name}', which is not here") from None
    made: Wing = module.wing(job)
    made.name = name
    return made
