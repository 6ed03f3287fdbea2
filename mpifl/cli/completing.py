"""Shell completion of algorithms, kinds of data, jobs and runs, without heavy imports."""

from __future__ import annotations

import json
from pathlib import Path


def algorithms(incomplete: str) -> list[str]:
    """Return the algorithms with this prefix, from the schema of jobs."""
    from mpifl.cli.job_tools import jobs_folder

    schema = json.loads((jobs_folder() / "job.schema.json").read_text("utf-8"))
    names = (name.partition("algorithm.")[2] for name in schema["$defs"])
    return [name for name in names if name and name.startswith(incomplete)]


def kinds(incomplete: str) -> list[str]:
    """Return the kinds of data with this prefix."""
    from mpifl.cli.job_tools import TEMPLATES

    return [kind for kind in TEMPLATES if kind.startswith(incomplete)]


def examples(incomplete: str) -> list[str]:
    """Return the examples with this prefix."""
    from mpifl.cli import job_tools

    return [name for name in job_tools.examples() if name.startswith(incomplete)]


def listed(incomplete: str) -> list[str]:
    """Return the kinds of `mpifl list` with this prefix."""
    from mpifl.cli.listing import kind_names

    return [kind for kind in kind_names() if kind.startswith(incomplete)]


def tables(incomplete: str) -> list[str]:
    """Return the tables of a job with this prefix, from the schema of jobs."""
    from mpifl.cli.job_tools import jobs_folder

    schema = json.loads((jobs_folder() / "job.schema.json").read_text("utf-8"))
    items = schema["properties"].items()
    return [name for name, one in items if "$ref" in str(one) and name.startswith(incomplete)]


def job_files(incomplete: str) -> list[str]:
    """Return the folders, and the files that may be jobs, with this prefix of their paths."""
    return [_shown(path) for path in _beginning(incomplete) if path.is_dir() or path.suffix == ".toml"]


def runs(incomplete: str) -> list[str]:
    """Return the run folders with this prefix of their paths, or else the folders that may contain runs."""
    folders = [path for path in _beginning(incomplete) if path.is_dir()]
    return [str(path) for path in folders if (path / "job.toml").is_file()] or [
        _shown(one) for one in folders
    ]


def _beginning(incomplete: str) -> list[Path]:
    """Return the paths with this prefix; hidden ones only if the prefix asks for them."""
    head, slash, tail = incomplete.rpartition("/")
    try:
        found = sorted(Path(head + slash).iterdir())
    except OSError:
        return []
    return [one for one in found if one.name.startswith(tail) and one.name[0] != "." * (not tail)]


def _shown(path: Path) -> str:
    return f"{path}/" if path.is_dir() else str(path)
