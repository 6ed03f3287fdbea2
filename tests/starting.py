"""How tests start Python: ranks and commands are forked from one process that has torch imported.

Pytest imports `conftest` under a second name. What is here there is once, and so is that process.
"""

from __future__ import annotations

import atexit
import functools
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).parent.parent
_ONE_AT_A_TIME = threading.Lock()


def rank_environment(**more: str) -> dict[str, str]:
    """The environment of the ranks: this one, and the test folder's own modules to import."""
    paths = [str(ROOT), str(ROOT / "tests" / "mpi"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


@functools.cache
def _warm() -> str:
    """Return the socket of a process that starts Python with torch imported; it ends with this one.

    Beside it lies a program `python`, which is Python for what a command itself starts.
    """
    folder = tempfile.TemporaryDirectory()
    socket = str(Path(folder.name) / "warm")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "warm.py"), socket],
        cwd=ROOT,
        env=rank_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    atexit.register(lambda: (process.communicate(), folder.cleanup()))
    assert process.stdout is not None
    assert process.stdout.readline()
    script = Path(folder.name) / "python"
    started = shlex.join([sys.executable, "-I", "-S", str(ROOT / "tests" / "start.py"), socket])
    plain = shlex.quote(sys.executable)
    forked = f'case "$1" in -m|*.py) exec {started} "$WARM_SESSIONS" "$@";; esac'
    parser = f'case "$4" in */hdf5_parser.py) shift 3; exec {started}.parser "" "$@";; esac'
    script.write_text(f'#!/bin/sh\n{forked}\n{parser}\nexec {plain} "$@"\n')
    script.chmod(0o755)
    return socket


def python(sessions: Path | str = "") -> list[str]:
    """Return what starts Python for a command of mpifl: a process of its own, but for the imports.

    Args:
        sessions: A folder where the sessions of what is started are noted.
    """
    if sys.platform != "linux":
        return [sys.executable]
    with _ONE_AT_A_TIME:
        socket = _warm()
    return [sys.executable, "-I", "-S", str(ROOT / "tests" / "start.py"), socket, str(sessions)]


def warm_executable() -> str:
    """Return a program that is `python`, by one path; the variable WARM_SESSIONS may name its folder."""
    return str(Path(python()[-2]).with_name("python")) if sys.platform == "linux" else sys.executable
