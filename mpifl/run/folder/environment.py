"""`environment.json` of a run folder: what a run was made by, and where; why it was given up."""

from __future__ import annotations

import functools
import json
import platform
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from mpifl import __version__
from mpifl.common import LARGEST_FILE, read_whole, write_atomic, write_needed

_KINDS = {"versions": dict, "ranks": dict, "data": dict, "metric": dict, "silos": list, "changes": list}
_KINDS |= {"directory": str, "released": str}
"""Of what in `environment.json` is read again."""
OWN = ("versions", "platform", "command", "started", "directory", "changes", "lost")
"""Of what is in it that is written here."""
_PACKAGES = ("torch", "numpy", "h5py", "mpi4py", "pydantic", "safetensors")


def write_environment(folder: Path, changes: list[str] | None = None, **more: Any) -> None:
    """Write `environment.json`: versions, machines, all that was ever changed by force, and what is given.

    Raises:
        Unwritable: the disk is full, or fails.
    """
    about: dict[str, Any] = {"versions": _versions(), "platform": platform.platform(), "command": sys.argv}
    about |= {"started": time.time(), "directory": str(Path.cwd())}  # the job's relative paths start there
    if forced := [*read_environment(folder).get("changes", []), *(changes or [])]:
        more["changes"] = forced
    write_needed(folder / "environment.json", json.dumps({**about, **more}, indent=1).encode() + b"\n")


@functools.cache
def _versions() -> dict[str, str]:
    versions = {"mpifl": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def read_environment(folder: Path) -> dict[str, Any]:
    """Return what `environment.json` says as this program writes it;
    nothing where there is none that can be read."""
    try:
        about = from_json(read_whole(folder / "environment.json", LARGEST_FILE), allow_inf_nan=False)
    except (OSError, ValueError):
        return {}
    found = about.items() if isinstance(about, dict) else ()
    about = {key: value for key, value in found if isinstance(value, _KINDS.get(key, object))}
    if not all(isinstance(rank, dict) for rank in about.get("ranks", {}).values()):
        del about["ranks"]
    if "\0" in about.get("directory", ""):
        del about["directory"]
    return about


def note_lost(folder: Path, why: str) -> None:
    """Note in `environment.json` that too few silos answered in the end; a run that goes on drops it."""
    with suppress(OSError):  # it was said already
        write_atomic(
            folder / "environment.json",
            json.dumps(read_environment(folder) | {"lost": why}, indent=1).encode() + b"\n",
        )


def why_lost(folder: Path) -> str | None:
    """Return why a run ended as `note_lost` says; None if it did not, or went on."""
    why = read_environment(folder).get("lost")
    return None if why is None else str(why)
