"""MPI libraries, and commands that run under one and must leave nothing: no process, no file in /dev/shm."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = "MPIFL_MATRIX"
"""Environment variable of all processes that a command starts."""
SHARED = Path("/dev/shm")
PATIENCE = 900.0
"""Seconds that a command may take."""
GRACE = 10.0
"""Seconds that processes have to end in when their command has."""


@dataclass(frozen=True)
class Library:
    """An MPI library, and how its ranks are started; `path` is its file or folder, if it must be told."""

    name: str
    python: str
    launcher: str
    path: str

    def environment(self) -> dict[str, str]:
        """Return the user's environment with this library, and without what another's launcher is told."""
        users = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PRTE_"))}
        more = {
            "PATH": f"{Path(self.launcher).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}{os.pathsep}.",
            # there are more ranks than cores
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        }
        variable = "MPI4PY_LIBMPI" if Path(self.path).is_file() else "LD_LIBRARY_PATH"
        return users | more | ({variable: self.path} if self.path else {})

    def start(self, ranks: int) -> list[str]:
        """Return what starts so many ranks."""
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        flags = ["--oversubscribe", "--bind-to", "none", *root] if "Open MPI" in self.name else []
        return [self.launcher, *flags, "-n", str(ranks)]


class Command:
    """A command in a session of its own, whose processes are known by a mark in their environment."""

    def __init__(self, command: list[str], library: Library, folder: Path) -> None:
        mark = uuid.uuid4().hex
        self._mark, self._before = f"{MARK}={mark}".encode(), _shared()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command, cwd=folder, env={**library.environment(), MARK: mark}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def processes(self) -> list[int]:
        """Return the living processes that it has started."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if self._mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def send(self, number: int, process: int | None = None) -> None:
        with contextlib.suppress(ProcessLookupError):  # what it came to says it
            os.kill(process or self._process.pid, number)

    def end(self) -> tuple[int, str]:
        """Wait, and return the exit code and what was said.

        Raises:
            AssertionError: it hangs, or something was left, which is removed.
        """
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._kill()
            raise AssertionError("hangs") from None
        until = time.monotonic() + GRACE
        while self.processes() and time.monotonic() < until:
            time.sleep(0.1)
        processes, files = self._kill(), sorted(_shared() - self._before)
        for name in files:
            with contextlib.suppress(OSError):
                (SHARED / name).unlink()
        assert not processes, f"{processes} processes left"
        assert not files, f"left in /dev/shm: {', '.join(files)}"
        self._output.seek(0)
        return code, self._output.read().decode(errors="replace")

    def _kill(self) -> int:
        """Kill what still runs, and return how many processes that were."""
        processes = self.processes()
        for process in processes:
            self.send(signal.SIGKILL, process)
        return len(processes)


def _shared() -> set[str]:
    return {one.name for one in SHARED.iterdir()}
