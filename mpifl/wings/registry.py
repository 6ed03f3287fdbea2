"""The list of all wings, and the ones that a job asks for. The core itself imports no wing."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from mpifl.common import InputError
from mpifl.run.job import Job
from mpifl.training import Wing, WingsOf

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
    "sites",
)
"""The wings, in the order in which they act. Each is a folder whose face has `wing(job)`."""
OVER_SITES = "sites.link"
"""A file of a run folder whose silos are at sites: then the wing `sites` trains. Else it only refuses."""


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


def wings_at(run: Path) -> WingsOf:
    """Return what makes the wings of a training in a run folder: `wings_of`, or its like that asks sites.

    Raises:
        InputError: the folder is of a run over sites, and cannot be used.
    """
    if not (run / OVER_SITES).exists():
        return wings_of
    found: WingsOf = importlib.import_module("mpifl.wings.sites").over_sites(run, wings_of)
    return found
