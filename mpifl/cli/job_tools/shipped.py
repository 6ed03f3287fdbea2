"""The jobs that come with the package: inside the package in a wheel, at the top in a checkout."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2]


def beside(inside: str, checkout: str) -> Path:
    """Return a folder that a wheel has in the package under one path, and a checkout under another."""
    packed = PACKAGE / inside
    return packed if packed.is_dir() else PACKAGE.parent / checkout


def jobs_folder() -> Path:
    """Return the folder of the jobs."""
    return beside("jobs", "jobs")


def jobs() -> dict[str, str]:
    """Return each job by its path in the folder, with the first sentence of its comments."""
    folder = jobs_folder()
    paths = sorted(folder.rglob("*.toml"))
    return {str(path.relative_to(folder).with_suffix("")): _sentence(path) for path in paths}


def shipped_job(given: Path) -> Path | None:
    """Return the job of the package that a name or path means, such as `demo` or `jobs/demo.toml`; else
    None."""
    parts = given.parts[given.parts[:1] == ("jobs",) :]
    folder = jobs_folder()
    path = folder.joinpath(*parts) if parts else folder
    path = path if path.suffix == ".toml" else path.with_name(f"{path.name}.toml")
    return path if path.is_relative_to(folder) and ".." not in parts and path.is_file() else None


def _sentence(path: Path) -> str:
    lines = path.read_text("utf-8").splitlines()
    comment = [line.removeprefix("#").strip() for line in lines[: lines.index("")] if line.startswith("# ")]
    return re.split(r"(?<!al)\. ", " ".join(comment))[0].removesuffix(".") + "."
