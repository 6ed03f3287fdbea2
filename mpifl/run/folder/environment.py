"""`environment.json` of a run folder: a run's versions and machines, and why it was lost."""

from __future__ import annotations

import functools
import json
import platform
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from mpifl import __version__
from mpifl.common import LARGEST_FILE, read_whole, write_atomic, write_needed
from mpifl.run.folder.metrics_file import encode_record

_KINDS = {
    "versions": dict,
    "ranks": dict,
    "data": dict,
    "code": dict,
    "metric": dict,
    "silos": list,
    "changes": list,
    "before": dict,
}
_KINDS |= {"directory": str, "released": str, "frozen_sha256": str, "metrics": list, "hosts": list}
"""The types of the entries of `environment.json` that are read again."""
OWN = ("versions", "platform", "command", "started", "directory", "changes", "lost", "before", "hosts")
"""The entries of `environment.json` that this module writes."""
_PACKAGES = ("torch", "numpy", "h5py", "mpi4py", "pydantic", "safetensors")
_COMPUTES = re.compile(r"(?:torch|numpy)\b(?!-)")
"""What a library requires that may decide bits."""
_CALLED = {"sklearn": "scikit-learn", "skimage": "scikit-image", "PIL": "pillow"}
"""Names of libraries whose modules have others."""
_ALSO = ("tokenizers", "pillow")
"""Libraries that decide bits without such a requirement."""


def write_environment(folder: Path, changes: list[str] | None = None, **more: Any) -> None:
    """Write `environment.json`.

    Args:
        folder: The run folder.
        changes: Changes that the user has forced now; earlier ones stay.
        **more: Further entries.

    Raises:
        Unwritable: the disk is full, or fails.
    """
    about: dict[str, Any] = {"versions": _versions(), "platform": platform.platform(), "command": sys.argv}
    about |= {"started": time.time(), "directory": str(Path.cwd())}  # the job's relative paths start here
    old = read_environment(folder)
    if forced := [*old.get("changes", []), *(changes or [])]:
        more["changes"] = forced
    started = [rank.get("host") for of in (old, more) for rank in of.get("ranks", {}).values()]
    hosts = [str(host) for host in (*old.get("hosts", ()), *started) if host]
    more |= {"hosts": [*dict.fromkeys(hosts)]} if hosts else {}
    more |= {"before": old["before"]} if "before" in old else {}
    write_needed(folder / "environment.json", json.dumps({**about, **more}, indent=1).encode() + b"\n")


def _versions() -> dict[str, str]:
    versions = {"mpifl": __version__, "python": platform.python_version()}
    modules = {name.partition(".")[0] for name in [*sys.modules]} - sys.stdlib_module_names
    loaded = sorted(_CALLED.get(name, name) for name in modules if not name.startswith("_"))
    for package in dict.fromkeys([*_PACKAGES, *filter(_computes, loaded)]):
        if found := _version(package):
            versions[package] = found
    return versions


@functools.cache
def _version(package: str) -> str:
    with suppress(PackageNotFoundError):
        return version(package)
    return ""


@functools.cache
def _computes(package: str) -> bool:
    """Return whether a library may decide bits: it builds on torch or numpy, or is one of `_ALSO`."""
    if package in _ALSO:
        return True
    with suppress(PackageNotFoundError):
        needed = (one for one in requires(package) or () if "extra ==" not in one)
        return package != "mpifl" and any(map(_COMPUTES.match, needed))
    return False


def read_environment(folder: Path) -> dict[str, Any]:
    """Return the entries of `environment.json` that have their types; {} if the file cannot be read."""
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


def note_before(folder: Path, record: Mapping[str, Any]) -> None:
    """Note in `environment.json` how the model scored before the first round.

    Raises:
        Unwritable: the disk is full, or fails.
    """
    about = {**read_environment(folder), "before": json.loads(encode_record(record))}
    write_needed(folder / "environment.json", json.dumps(about, indent=1).encode() + b"\n")


def note_lost(folder: Path, why: str) -> None:
    """Note in `environment.json` why the run was lost; the note goes when the run is resumed."""
    with suppress(OSError):  # the user has been told already
        write_atomic(
            folder / "environment.json",
            json.dumps(read_environment(folder) | {"lost": why}, indent=1).encode() + b"\n",
        )


def why_lost(folder: Path) -> str | None:
    """Return why a run was lost, by `note_lost`; None if it was not, or was resumed."""
    why = read_environment(folder).get("lost")
    return None if why is None else str(why)
