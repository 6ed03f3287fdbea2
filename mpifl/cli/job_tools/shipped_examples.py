"""The examples that come with the package: inside the package in a wheel, in docs/examples in a checkout."""

from __future__ import annotations

import shutil
from pathlib import Path

from mpifl.cli.job_tools.shipped import beside
from mpifl.common import InputError, choices


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
