"""A training in a world of some ranks: whole, or killed and gone on with; and what it has come to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from scripts.jobs_at_random import drive

Job = dict[str, Any]
PATIENCE, COMPILING = 120.0, 300.0
"""Seconds after which a training hangs, and one that may have to wait for a compiler."""
TRAINED, REFUSED, LOST, STOPPED, FAILED, HUNG = "trained", "refused", "lost", "stopped", "failed", "hung"
_COSTS = re.compile(
    r"time|seconds|rank_seconds|examples_per_second|tokens_per_second|wire_|server_rss_mb|parties|train_seconds"
)
"""Figures of a round that may differ from run to run."""


@dataclass(frozen=True)
class World:
    """How many ranks there are, how many of them are taken for one node, and when they are killed."""

    ranks: int
    nodes_of: int | None = None
    killed: float | None = None
    """The share of a whole run's time after which all ranks are killed."""

    def __str__(self) -> str:
        nodes = f", nodes of {self.nodes_of}" if self.nodes_of else ""
        killed = f", killed at {self.killed:.2f} of its time" if self.killed is not None else ""
        return f"{self.ranks} ranks{nodes}{killed}"


@dataclass(frozen=True)
class End:
    """What a training came to: how it ended, what it made or said, how long it took."""

    how: str
    what: Any
    seconds: float
    said: str = ""


class Trainer:
    """Trains jobs by the command that users give, in folders of its own.

    Args:
        folder: Where the runs lie.
        python: What starts Python.
        launcher: What starts ranks.
        environment: Of the ranks.
    """

    def __init__(
        self, folder: Path, python: list[str], launcher: list[str], environment: dict[str, str]
    ) -> None:
        self.folder, self.python, self.launcher, self.environment = folder, python, launcher, environment

    def train(self, job: Job, world: World, expected: float = 2.0) -> End:
        """Return what a job comes to by the users' command; where the world is killed it continues in
        one of two ranks more or less."""
        run = self._folder(job)
        patience = COMPILING if job.get("local", {}).get("compile") else PATIENCE
        try:
            if world.killed is None:
                return self._end(run, self._started(run, world), patience)
            self._kill(run, self._started(run, world), world.killed * expected)
            other = World(world.ranks - 2 if world.ranks > 3 else world.ranks + 2, world.nodes_of)
            return self._end(run, self._started(run, other, "--resume"), patience)
        finally:
            shutil.rmtree(run, ignore_errors=True)

    def train_all(self, jobs: Sequence[Job], world: World) -> list[End]:
        """Return what jobs come to that are trained one after another in one world.

        One that ends the world by a fault, or hangs, is trained once more by itself, and the others behind it
        in a new world.
        """
        runs = [self._folder(job) for job in jobs]
        found: list[End] = []
        try:
            while len(found) < len(runs):
                found += self._ended(runs[len(found) :], world)
                if len(found) < len(runs):
                    found.append(self.train(jobs[len(found)], world))
        finally:
            for run in runs:
                shutil.rmtree(run, ignore_errors=True)
        return found

    def _ended(self, runs: Sequence[Path], world: World) -> list[End]:
        """Train the jobs of folders in one world; return the ends of those before the first without one."""
        names = runs[0] / "folders"
        names.write_text("".join(f"{run}\n" for run in runs))
        process = self._launched(runs[0], world, "-m", "scripts.jobs_at_random.drive", str(names))
        left, since, found = list(runs), time.monotonic(), list[End]()
        while left:
            gone = process.poll() is not None
            if (left[0] / drive.END).exists():
                found.append(_end_of(left.pop(0), time.monotonic() - since))
                since = time.monotonic()
            elif gone or time.monotonic() - since > PATIENCE:
                break
            else:
                time.sleep(0.02)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE if not left else 0)
        _kill_all(process)
        return found

    def _folder(self, job: Job) -> Path:
        run = Path(tempfile.mkdtemp(dir=self.folder))
        (run / "job.toml").write_text(tomli_w.dumps(job))
        of_run = "privacy" in job or "protect" in job.get("split", {})
        for place in (run / "site", *([run / "out" / "privacy"] if of_run else [])):
            place.mkdir(mode=0o700, parents=True)
            (place / "key").write_bytes(bytes(range(32)))  # the same secrets in each world
        return run

    def _started(self, run: Path, world: World, *more: str) -> subprocess.Popen[str]:
        return self._launched(run, world, "-m", "mpifl", "train", "job.toml", "--out", "out", *more)

    def _launched(self, run: Path, world: World, *act: str) -> subprocess.Popen[str]:
        nodes = {"MPIFL_RANKS_PER_NODE": str(world.nodes_of)} if world.nodes_of else {}
        start = [*self.launcher, "-n", str(world.ranks), *self.python] if world.ranks > 1 else self.python
        return subprocess.Popen(
            [*start, *act],
            cwd=run,
            env={**self.environment, **nodes, "MPIFL_SITE": str(run / "site"), "TMPDIR": str(run)},
            stdin=subprocess.DEVNULL,
            stdout=(run / "stdout").open("w"),
            stderr=(run / "stderr").open("w"),
            text=True,
            start_new_session=True,
        )

    def _kill(self, run: Path, process: subprocess.Popen[str], seconds: float) -> None:
        """Kill a launcher after a while; its ranks end soon, since what started them is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        _kill_all(process)
        until = time.monotonic() + PATIENCE
        while _is_inhabited(run) and time.monotonic() < until:
            time.sleep(0.02)

    def _end(self, run: Path, process: subprocess.Popen[str], patience: float) -> End:
        start = time.monotonic()
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            _kill_all(process)
            return End(HUNG, None, patience, _tail(run))
        said = (run / "stderr").read_text(errors="replace")
        last = next((line for line in said.splitlines()[::-1] if line.startswith("error: ")), "")
        return _end(run, code, last, time.monotonic() - start)


def _end_of(run: Path, seconds: float) -> End:
    """Return the end that the ranks of a world have left."""
    left = json.loads((run / drive.END).read_text())
    return _end(run, left["code"], left["last"], seconds)


def _end(run: Path, code: int, last: str, seconds: float) -> End:
    if "Traceback (most recent call last)" in _tail(run, everything=True) or code not in (0, 2, 3):
        return End(FAILED, code, seconds, _tail(run))
    if code:
        return End({2: REFUSED, 3: LOST}[code], last.replace(str(run), "RUN"), seconds, _tail(run))
    return End(TRAINED, _made(run / "out"), seconds, _tail(run))


def _kill_all(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _is_inhabited(folder: Path) -> bool:
    """Return whether a process works in a folder."""
    for process in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if process.readlink() == folder:
                return True
    return False


def _tail(run: Path, *, everything: bool = False) -> str:
    said = (run / "stderr").read_text(errors="replace")
    return said if everything else said[-3000:]


def _made(run: Path) -> dict[str, Any]:
    """Return the sha256 of all that a run made that must not depend on ranks: the model, each silo's state,
    the rounds' figures."""
    last = max((run / "checkpoints").glob("round_*"), default=None)
    body = json.loads((last / "checkpoint.json").read_text()) if last else {}
    model = run / "model.safetensors"
    rounds = [_figures(json.loads(line)) for line in _lines(run / "metrics.jsonl")]
    for record in rounds[
        :-1
    ]:  # a killed run has released more than its checkpoint knows, and says so at once
        record.pop("epsilon", None)
    return {
        "model": hashlib.sha256(model.read_bytes()).hexdigest() if model.exists() else None,
        "server": body.get("server"),
        "silos": body.get("silos"),
        "rounds": rounds,
    }


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _figures(record: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in record.items() if not _COSTS.match(key)}
    return {**kept, "faults": sorted(map(str, kept.get("faults", [])))}


def is_alone(job: Job) -> bool:
    """Return whether a job must have a world of its own: it changes what ranks are, or pins their kernels."""
    return (
        job.get("silo", {}).get("ranks", 1) > 1
        or "kernels" in job
        or bool(job.get("local", {}).get("compile"))
    )


def least_of(job: Job) -> int:
    """Return how few ranks a job can have: a sum under masks needs three parties."""
    return 4 if "security" in job and job["security"].get("masks", True) else 1


def common_worlds(least: int, draw: Random) -> tuple[World, World]:
    """Return two worlds that jobs are to come to the same in."""
    first, second = draw.sample(range(least, 7), 2)
    return World(first), World(second, draw.choice([None, None, 1, 2, 3]))


def own_worlds(job: Job, draw: Random) -> tuple[World, World]:
    """Return two worlds for one job, of which the second may be killed."""
    first, second = draw.sample(range(least_of(job), 7), 2)
    killed = draw.uniform(0.2, 1.1) if draw.random() < 0.7 else None
    return World(first), World(second, draw.choice([None, None, 1, 2, 3]), killed)
