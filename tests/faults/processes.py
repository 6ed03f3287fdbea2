"""Real processes under control: each command in a session of its own,
waited for with a deadline, ended to the last."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import launcher, python, rank_environment, warm_executable

HERE = Path(__file__).parent
PATIENCE = 180
"""Seconds until a wait fails; nothing here takes as long, on a machine that others load, too."""
COSTS = (
    "time",
    "seconds",
    "examples_per_second",
    "tokens_per_second",
    "wire_",
    "bytes_received",
    "bytes_of_silo_max",
    "server_rss_mb",
    "joules_processors",
    "joules_gpus",
    "rank",
    "parties",
)
"""Figures of a round that may differ from run to run."""


class Command:
    """`python ARGUMENTS` on some ranks, with all processes that this starts.

    Args:
        trouble: What the modules of `plugins` do to it.
        cold: Whether Python starts as users start it, and the ranks of `--ranks`, too.

    Attributes:
        folder: Where the command's output, its temporary files and the marks of `plugins` lie.
        code: The exit code, once it has ended.
        seconds: How long it took.
    """

    def __init__(
        self,
        folder: Path,
        ranks: int,
        *arguments: str | Path,
        trouble: dict[str, Any] | None = None,
        survive: bool = False,
        cold: bool = False,
        **variables: str,
    ) -> None:
        self.folder = folder
        self.code: int | None = None
        self.seconds = 0.0
        self._sessions = folder / "sessions"
        for made in (folder / "tmp", self._sessions):
            made.mkdir(parents=True)
        more = variables | ({"TROUBLE": json.dumps({"at": str(folder), **trouble})} if trouble else {})
        environment = rank_environment(
            TMPDIR=str(folder / "tmp"), OMPI_MCA_btl_sm_backing_directory=str(folder), **more
        )
        environment.pop("OMPI_MCA_btl", None)  # the program's own choice is what is tried
        environment["PYTHONPATH"] = f"{HERE}{os.pathsep}{environment['PYTHONPATH']}"
        start = (
            [*launcher(), *(["--with-ft", "ulfm"] if survive else []), "-n", str(ranks)] if ranks > 1 else []
        )
        start += [sys.executable] if cold else python(self._sessions)
        if not cold:
            environment |= {"WARM_PYTHON": warm_executable(), "WARM_SESSIONS": str(self._sessions)}
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self._began = time.monotonic()
            self._process = subprocess.Popen(
                [*start, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )

    @property
    def session(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.poll()

    def living(self) -> list[int]:
        """The processes of its session, and of the sessions of its ranks."""
        noted = [int(one.name) for one in self._sessions.iterdir()]
        return living(self.session, *noted)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Wait for a condition; fail if the command ends before, or takes too long."""
        deadline = time.monotonic() + PATIENCE
        while not happened():
            assert self._process.poll() is None, (
                f"ended with {self._process.returncode} before {what}\n{self._said()}"
            )
            assert time.monotonic() < deadline, f"waited too long for {what}\n{self._said()}"
            time.sleep(0.002)

    def wait(self, seconds: float) -> None:
        """Let a moment of its life pass."""
        time.sleep(seconds)

    def reached(self) -> Command:
        """Wait until a process has come to the place where `plugins` holds it."""
        self.until((self.folder / "reached").exists, "the place to be held at")
        return self

    def release(self) -> Command:
        """Let the processes go on that are held."""
        (self.folder / "open").touch()
        return self

    def end(self, seconds: float = PATIENCE) -> Command:
        """Wait until the command has ended by itself, and every process with it."""
        try:
            self.code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {seconds} s\n{self._said()}") from None
        self.seconds = time.monotonic() - self._began
        deadline = time.monotonic() + PATIENCE / 6
        while left := self.living():
            assert time.monotonic() < deadline, f"processes {left} were left behind\n{self._said()}"
            time.sleep(0.01)
        return self

    @property
    def ended_hanging_ranks(self) -> bool:
        """Whether rank 0 ended the training with 0, and the ranks that hang by MPI_Abort.

        The launcher of Open MPI 5 crashes in one of some hundred runs after it has reported that call.
        It then ends by SIGSEGV, and what counts is what it had reported.
        """
        reported = re.search(r"MPI_ABORT was invoked on rank 0 .*\n.*\n\s*Errorcode: 0\n", self.err)
        return bool(reported) and self.code in (0, -signal.SIGSEGV)

    def kill(self) -> Command:
        """Kill -9 the launcher and all ranks at once."""
        deadline = time.monotonic() + PATIENCE / 6
        while (left := self.living()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
            time.sleep(0.002)
        self.code = self._process.wait(PATIENCE / 6)
        assert not left, f"processes {left} outlive SIGKILL"
        return self

    def _said(self) -> str:
        return f"{self.out[-2000:]}\n{self.err[-4000:]}"


def living(*sessions: int) -> list[int]:
    """The processes of some sessions that are no zombies;
    ranks have groups of their own, but their launcher's session."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its_session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(its_session) in sessions and state != "Z":
            found.append(int(process.name))
    return found


def ranks_of(session: int) -> dict[int, int]:
    """The process of each rank of a session that there is by now."""
    found = {}
    for pid in living(session):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found |= {
                int(word.partition(b"=")[2]): pid
                for word in words
                if word.startswith(b"OMPI_COMM_WORLD_RANK=")
            }
    return found


def pid_of(run: Path, rank: int) -> int:
    return int(json.loads((run / "environment.json").read_text())["ranks"][str(rank)]["pid"])


def train(job: Path, run: Path, *more: str) -> list[str]:
    """The arguments of a training."""
    return ["-m", "mpifl", "train", str(job), "--out", str(run), *more]


def own_lines(err: str) -> list[str]:
    """What stands on stderr, without what a launcher says of itself when ranks end early:
    blocks between rules, and lines of PMIx, which it now and then loses a rank over; and Open MPI's own word
    on a collective that a death has cut short."""
    of_launcher = r"(?ms)^-{40,}\n.*?^-{40,}\n|^\[[^\]\n]+:\d+\] PMIX ERROR: [^\n]*\n|^NBC_Progress: [^\n]*\n"
    return [line for line in re.sub(of_launcher, "", err).splitlines() if line.strip()]


def rounds_of(run: Path) -> list[dict[str, Any]]:
    """The metrics, without what may differ from run to run."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if not k.startswith(COSTS)} for record in records]


def lines_of(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def checkpoints(run: Path) -> list[int]:
    """The rounds whose checkpoint claims to be whole; fail if one is not,
    by what it says of its own files."""
    whole = []
    for path in sorted(run.glob("checkpoints/round_*/checkpoint.json")):
        body = json.loads(path.read_text())
        files = {"server": body["server"], **{f"silo_{int(k):04d}": v for k, v in body["silos"].items()}}
        for name, sha256 in files.items():
            (file,) = path.parent.glob(f"{name}.*")  # a silo's may be sealed
            content = file.read_bytes()
            assert hashlib.sha256(content).hexdigest() == sha256, f"{path} says that {name} is whole"
        whole.append(body["round"])
    return whole


def outcome(run: Path) -> dict[str, Any]:
    """All that must be the same bits: the model, what each round brought, and the state at the end."""
    last = max(run.glob("checkpoints/round_*/checkpoint.json"))
    return {
        "model": hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest(),
        "rounds": rounds_of(run),
        "state": json.loads(last.read_text()),
    }


def tree(folder: Path) -> dict[str, str]:
    """The sha256 of every file of a folder; what stands in the lock is no part of a run."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
