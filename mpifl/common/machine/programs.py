"""How the user's own shell starts the package's commands."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

MODULES = {"mpifl": "mpifl", "data-prep": "data_prep"}
"""The package's commands, and the modules that they run."""


def runnable(line: str) -> str:
    """Return a command line of the package as it works in the shell that started this process.

    An environment that is not activated has its commands on no PATH: there they are named by their path.

    Args:
        line: It begins with one of MODULES.
    """
    name, _, rest = line.partition(" ")
    return " ".join([shlex.join(_start(name)), *([rest] if rest else [])])


def _start(name: str) -> list[str]:
    own, found = Path(sys.executable).with_name(name), shutil.which(name)
    if found and (not own.is_file() or Path(found).samefile(own)):
        return [name]
    return [str(own)] if own.is_file() else [sys.executable, "-m", MODULES[name]]
