"""The jobs and examples that come with the package: inside it in a wheel, at their place in a checkout."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from mpifl.common import InputError, choices

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
    text = " ".join(comment)
    ends = (at.start() for at in re.finditer(r"(?<!al)\. ", text))
    end = next((end for end in ends if text.count("(", 0, end) == text.count(")", 0, end)), len(text))
    return text[:end].removesuffix(".") + "."


def examples_folder() -> Path:
    """Return the folder of the examples."""
    return beside("examples", "docs/examples")


def examples() -> dict[str, str]:
    """Return each example by its name, with the title of its page."""
    pages = sorted(examples_folder().glob("*/README.md"))
    return {page.parent.name: page.read_text("utf-8").splitlines()[0].removeprefix("# ") for page in pages}


def copy_example(name: str, folder: Path) -> list[Path]:
    """Copy an example with all its files, and return them.

    Args:
        name: The example.
        folder: Where its files go; made if it is missing.

    Raises:
        InputError: there is no such example, or the folder has files or cannot be written.
    """
    if name not in examples():
        raise InputError(f"mpifl examples {name}: no such example; {choices(name, examples())}")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder}: is there already; name another folder: mpifl examples {name} FOLDER")
        folder.mkdir(parents=True, exist_ok=True)
        files = sorted(path for path in (examples_folder() / name).iterdir() if path.is_file())
        return [Path(shutil.copy(path, folder / path.name)) for path in files]
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from None
