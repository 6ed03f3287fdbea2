"""What both ends of a run over sites know of its job: names, texts, and bounds."""

from __future__ import annotations

from importlib.metadata import version

from mpifl.data.shards import FederationSpec
from mpifl.run.job import Job


def names_of_silos(spec: FederationSpec) -> list[str]:
    """Return the names by which sites know silos: those of `federation.json` and `sites.toml`."""
    return [entry.name or f"silo {silo}" for silo, entry in enumerate(spec.silos)]


def welcome_text(job: Job, spec: FederationSpec) -> dict[str, str]:
    """Return what an invitation and a welcome tell of a job and its federation."""
    return {"job": job.model_dump_json(exclude_none=True), "spec": spec.model_dump_json()}


def largest_letter(elements: int, silos: int) -> int:
    """Return the most bytes of vectors of a letter, given the elements of the model and the site's silos.

    An algorithm sends few vectors, and most of them share one window. 64 vectors of float64 are more than any
    of the package sends in sums, and 4 of each silo where it hands over updates one by one.
    """
    return (1 << 24) + 8 * elements * max(64, 4 * silos)


def counted(number: int, what: str) -> str:
    """Return so many of something, as a line for people has it."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def torch_version() -> str:
    """Return the version of torch, without importing it."""
    return version("torch")
