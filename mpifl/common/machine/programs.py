"""Command lines of the package that work in the user's own shell."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

MODULES = {"mpifl": "mpifl", "data-prep": "data_prep"}
"""The package's commands, and the modules that they run."""


def runnable(line: str) -> str:
    """Return a command line of the package in a form that works in the shell that started this process.

    If the environment is not activated, its commands are not on the PATH. They are then named by their path.

    Args:
        line: The command line; its first word is one of `MODULES`.
    """
    name, _, rest = line.partition(" ")
    return " ".join([shlex.join(_start(name)), *([rest] if rest else [])])


def _start(name: str) -> list[str]:
    own, found = Path(sys.executable).with_name(name), shutil.which(name)
    if found and (not own.is_file() or Path(found).samefile(own)):
        return [name]
    return [str(own)] if own.is_file() else [sys.executable, "-m", MODULES[name]]
