"""How tests start Python: ranks and commands are forked from one process that has torch imported.

Pytest imports `conftest` under a second name. What is here there is once, and so is that process.
"""

from __future__ import annotations

import atexit
import fcntl
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
def warm_folder() -> Path:
    """Return the folder of the process that starts Python, which all processes of one pytest have in common.

    What lies in it: a pipe, which ends that process when the one that made the folder does.
    """
    if told := os.environ.get("WARM_FOLDER"):
        return Path(told)
    too_long = len(tempfile.gettempdir()) > 80  # a socket's path takes 107 bytes
    folder = tempfile.TemporaryDirectory(dir="/tmp" if too_long else None)
    os.mkfifo(Path(folder.name) / "ends")
    held = os.open(Path(folder.name) / "ends", os.O_RDWR | os.O_CLOEXEC)
    atexit.register(lambda: (os.close(held), folder.cleanup()))
    os.environ["WARM_FOLDER"] = folder.name
    return Path(folder.name)


@functools.cache
def _warm() -> str:
    """Return the socket of a process that starts Python with torch imported; who asks first starts it.

    Beside it lies a program `python`, which is Python for what a command itself starts.
    """
    folder = warm_folder()
    socket, script = str(folder / "warm"), folder / "python"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not script.exists():
            _start(folder, socket)
            started = shlex.join([sys.executable, "-I", "-S", str(ROOT / "tests" / "start.py"), socket])
            plain = shlex.quote(sys.executable)
            forked = f'case "$1" in -m|*.py) exec {started} "$WARM_SESSIONS" "$@";; esac'
            parser = f'case "$4" in */hdf5_parser.py) shift 3; exec {started}.parser "" "$@";; esac'
            script.write_text(f'#!/bin/sh\n{forked}\n{parser}\nexec {plain} "$@"\n')
            script.chmod(0o755)
    return socket


def _start(folder: Path, socket: str) -> None:
    with (folder / "ends").open("rb") as ends:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "warm.py"), socket],
            cwd=ROOT,
            env=rank_environment(),
            stdin=ends,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    assert process.stdout is not None
    assert process.stdout.readline()


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
