"""What both ends of a run over sites know of its job: names, digests, and bounds."""

from __future__ import annotations

import hashlib
from importlib.metadata import version

from mpifl.data.shards import FederationSpec
from mpifl.run.job import Job

OWN = {"shards", "device", "threads", "tracking", "checkpoint"}
"""Keys of a job that each site sets for itself."""


def names_of_silos(spec: FederationSpec) -> list[str]:
    """Return the names by which sites know silos: those of `federation.json` and `sites.toml`."""
    return [entry.name or f"silo {silo}" for silo, entry in enumerate(spec.silos)]


def digest_of_job(job: Job) -> str:
    """Return the sha256 of a job with all defaults, but for the keys that each site sets for itself."""
    return hashlib.sha256(job.model_dump_json(exclude_none=True, exclude=OWN).encode()).hexdigest()


def welcome_text(job: Job, spec: FederationSpec) -> dict[str, str]:
    """Return what a welcome tells of a job and its federation, without the server's test set."""
    of_sites = spec.model_copy(update={"test": None})
    return {"job": job.model_dump_json(exclude_none=True), "spec": of_sites.model_dump_json()}


def largest_letter(elements: int) -> int:
    """Return the most bytes of vectors of a letter, given the elements of the model.

    An algorithm sends few vectors, and most of them share one window. 64 vectors of float64 are more than any
    of the package sends.
    """
    return (1 << 24) + 64 * 8 * elements


def torch_version() -> str:
    """Return the version of torch, without importing it."""
    return version("torch")
