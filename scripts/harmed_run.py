"""A training on some ranks that survive each other: what it says, its processes, and signals to them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RANKS = 5
PATIENCE = 60
"""Seconds after which a run hangs."""
ULFM = ["--with-ft", "ulfm"]


class Run:
    """A training on 5 ranks; reads along what it says."""

    def __init__(
        self, folder: Path, job: Path, *more: str, start: Sequence[str | Path] | None = None
    ) -> None:
        self.run = folder / "run"
        start = start or ["-m", "mpifl", "train", job, "--out", self.run]
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        mpirun = [str(Path(sys.prefix) / "bin" / "mpirun"), "--oversubscribe", "--bind-to", "none", *root]
        command = [*mpirun, *ULFM, "-n", str(RANKS), sys.executable, *map(str, start), *more]
        paths = os.pathsep.join([str(ROOT), str(job.parent), os.environ.get("PYTHONPATH", "")])
        # mpirun leaves it behind when it is killed: docs/explanation/faults.md
        session = tempfile.mkdtemp(dir=folder)
        self.lines: list[tuple[float, str]] = []
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths, "MPIFL_JOIN_SECONDS": "20", "TMPDIR": session},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend((time.monotonic(), line.rstrip()) for line in self.process.stdout)

    def pass_rounds(self, rounds: float, seconds: float) -> None:
        """Let so many rounds pass, and the rest of one, each of which takes about so many seconds."""
        while self._rounds() < int(rounds) and self.process.poll() is None:
            time.sleep(0.002)
        self.pass_time(rounds % 1 * seconds)

    def _rounds(self) -> int:
        with contextlib.suppress(OSError):
            return (self.run / "metrics.jsonl").read_bytes().count(b"\n")
        return -1

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass; return at once when it ends."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def pids(self) -> dict[int, int]:
        """The processes of the ranks that there are."""
        found = {}
        for pid in _session(self.process.pid):
            with contextlib.suppress(OSError, StopIteration):
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                rank = next(word for word in words if word.startswith(b"OMPI_COMM_WORLD_RANK="))
                found.setdefault(int(rank.partition(b"=")[2]), pid)
        return found

    def signal(self, number: int, *ranks: int) -> None:
        pids = self.pids()
        for rank in ranks:
            with contextlib.suppress(KeyError, ProcessLookupError):
                os.kill(pids[rank], number)

    def kill(self) -> None:
        """Kill the launcher and all ranks."""
        for _ in range(3):
            for pid in _session(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        self.process.wait()

    def end(self, seconds: float = PATIENCE) -> int | None:
        """Return the exit code, None if it had to be killed."""
        try:
            code: int | None = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        self.kill()
        self._reader.join(5)
        return code

    def model(self) -> str:
        """The sha256 of the model, '' if there is none."""
        with contextlib.suppress(OSError):
            return hashlib.sha256((self.run / "model.safetensors").read_bytes()).hexdigest()
        return ""


def _session(session: int) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            state, _, _, its = (process / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its) == session and state != "Z":
                found.append(int(process.name))
    return found
