"""The matrix of `mpi_libraries.sh`: the same trainings under each MPI library, as a user would start them.

Each cell says what came of it: the same bits as one rank's, the exit code that is promised, one line of ours.
After each nothing may be left in /dev/shm, and no process.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "MPIFL_MATRIX"
"""Environment variable of all processes that a cell starts."""
PATIENCE = 900
SHARED = Path("/dev/shm")
OWN = """
import time
from mpifl import FedAvg

class Steady(FedAvg):
    def train(self, silo, w):
        time.sleep(0.1)
        return super().train(silo, w)

class Failing(FedAvg):
    def train(self, silo, w):
        if silo.id == 1:
            raise ValueError("this silo fails")
        return super().train(silo, w)
"""
JOB = """
name = "matrix"
shards = "shards"
rounds = 8
[model]
name = "mlp"
hidden = [16]
[algorithm]
name = "own:Steady"
[local]
lr = 0.1
batch_size = 64
[cohort]
quorum = 0.5
[checkpoint]
every = 1
"""
CUT = "--scheme dirichlet --alpha 1 --silos 4 --seed 1"
LARGE = ("--set", "model.hidden=[8192, 9000]", "--set", "rounds=1", "--set", "local.batch_size=512")
"""A model of 298 MB."""


@dataclass
class Library:
    """An MPI library, and how its ranks are started; `path` is its file or folder, if it must be told."""

    name: str
    python: str
    launcher: str
    path: str

    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PRTE_"))}
        more = {
            MARK: uuid.uuid4().hex,
            "PATH": f"{Path(self.launcher).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}{os.pathsep}.",
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        }
        variable = "MPI4PY_LIBMPI" if Path(self.path).is_file() else "LD_LIBRARY_PATH"
        paths = {variable: self.path} if self.path else {}
        return {**own, **more, **paths}

    @property
    def is_open(self) -> bool:
        return "Open MPI" in self.name

    def start(self, ranks: int) -> list[str]:
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        flags = ["--oversubscribe", "--bind-to", "none", *root] if self.is_open else []
        return [self.launcher, *flags, "-n", str(ranks)]


def _shared() -> set[str]:
    return {one.name for one in SHARED.iterdir()}


class Command:
    """A command in a session of its own, and what it left."""

    def __init__(self, library: Library, folder: Path, *command: str) -> None:
        self._shared, self._environment = _shared(), library.environment()
        self._err = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command, cwd=folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=self._err,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def processes(self) -> list[int]:
        """Return the living processes that it has started."""
        wanted, found = f"{MARK}={self._environment[MARK]}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def send(self, number: int, process: int | None = None) -> None:
        with contextlib.suppress(ProcessLookupError):  # what it came to says it
            os.kill(process or self._process.pid, number)

    def end(self) -> tuple[int, str]:
        """Wait; return the exit code and what was said. Raise AssertionError for what was left."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            for process in self.processes():
                os.kill(process, signal.SIGKILL)
            raise AssertionError("hangs") from None
        self._err.seek(0)
        said = self._err.read().decode(errors="replace")
        until = time.monotonic() + 10
        while (processes := self.processes()) and time.monotonic() < until:
            time.sleep(0.1)
        for process in processes:
            os.kill(process, signal.SIGKILL)
        left = _shared() - self._shared
        for name in left:
            with contextlib.suppress(OSError):
                (SHARED / name).unlink()
        assert not processes, f"{len(processes)} processes left"
        assert not left, f"left in /dev/shm: {', '.join(sorted(left))}"
        return code, said


class Cells:
    """What is tried under a library; each method is a cell, and raises AssertionError where it is not so."""

    def __init__(self, library: Library, others: list[Library], folder: Path, bits: dict[str, str]) -> None:
        self._library, self._others, self._folder, self._bits = library, others, folder, bits

    def _run(self, run: str) -> Path:
        return self._folder / f"{self._library.name} {run}".replace(" ", "_")

    def _train(self, run: str, *more: str, ranks: int = 0) -> list[str]:
        start = ["--ranks", str(ranks)] if ranks else []
        own = [self._library.python, "-m", "mpifl"]
        return [*own, "train", "job.toml", "--out", str(self._run(run)), *start, *more]

    def _command(self, *command: str) -> Command:
        return Command(self._library, self._folder, *command)

    def _same(self, run: str, what: str = "steady") -> None:
        """Hold the model against the first that was trained so."""
        found = hashlib.sha256((self._run(run) / "model.safetensors").read_bytes()).hexdigest()
        assert found == self._bits.setdefault(what, found), "other bits"

    def _whole(self, run: str, *command: str, what: str = "steady") -> None:
        code, said = self._command(*command).end()
        assert code == 0, f"{code}: {said[-300:]}"
        self._same(run, what)

    def ranks(self) -> str:
        """Train by the library's launcher."""
        for n in (1, 2, 3, 5):
            self._whole(f"by {n}", *(self._library.start(n) if n > 1 else []), *self._train(f"by {n}"))
        return f"sha256 {self._bits['steady'][:8]}"

    def _interrupted(self, run: str, ranks: int, act: Callable[[Command], None]) -> tuple[int, str]:
        command = self._command(*self._train(run, ranks=ranks))
        metrics, until = self._run(run) / "metrics.jsonl", time.monotonic() + PATIENCE
        while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
            assert time.monotonic() < until, "no round came"
            assert command._process.poll() is None, f"ended before: {command.end()}"
            time.sleep(0.02)
        act(command)
        return command.end()

    def _signalled(self, number: signal.Signals, before: int, after: int) -> str:
        run = number.name
        code, said = self._interrupted(run, before, lambda command: command.send(number))
        assert code == 75, f"{number.name}: {code}: {said[-300:]}"
        self._whole(run, *self._train(run, "--resume", ranks=after))
        return "75, resumed"

    def term(self) -> str:
        """TERM to the command on five ranks; the rest on two."""
        return self._signalled(signal.SIGTERM, 5, 2)

    def int_(self) -> str:
        """INT to the command on two ranks; the rest on three."""
        return self._signalled(signal.SIGINT, 2, 3)

    def early(self) -> str:
        """TERM as soon as the launcher has started something: no checkpoint, and no accident."""
        command = self._command(*self._train("early", ranks=2))
        while len(command.processes()) < 3 and command._process.poll() is None:
            time.sleep(0.005)
        command.send(signal.SIGTERM)
        code, said = command.end()
        assert code == 75, f"{code}: {said[-300:]}"
        return "75"

    def killed(self) -> str:
        """KILL to a worker."""

        def kill(command: Command) -> None:
            ranks = json.loads((self._run("killed") / "environment.json").read_text())["ranks"]
            command.send(signal.SIGKILL, int(ranks["1"]["pid"]))

        code, said = self._interrupted("killed", 3, kill)
        assert "ranks died, and the training ended with them" in said.splitlines()[-1], said[-300:]
        assert code == 4 or code > 128, str(code)
        self._whole("killed", *self._train("killed", "--resume", ranks=3))
        return f"{code}, one line, resumed"

    def failing(self) -> str:
        """A silo that fails in every round: the others train on."""
        more = ("--set", "algorithm.name=own:Failing")
        self._whole("failing", *self._train("failing", *more, ranks=3), what="failing")
        return f"sha256 {self._bits['failing'][:8]}"

    def large(self) -> str:
        """A model of 298 MB."""
        self._whole("large", *self._train("large", *LARGE, ranks=3), what="large")
        shutil.rmtree(self._run("large"))
        return f"sha256 {self._bits['large'][:8]}"

    def mixed(self) -> str:
        """The other libraries' launchers: they bring ranks together, or one line says why not."""
        works = []
        for other in self._others:
            run = f"mixed {other.name}"
            code, said = self._command(*other.start(2), *self._train(run)).end()
            ours = [line for line in said.splitlines() if line.startswith("error: MPI: ")]
            if code == 0:
                self._same(run)
                works.append(other.name)
            else:
                assert len(ours) == 1, (
                    f"{other.name}: {code}, {len(ours)} of {len(said.splitlines())} lines are ours"
                )
        return "refused" + (f"; works: {', '.join(works)}" if works else "")

    def doctor(self) -> str:
        """What the doctor calls the library and its launcher."""
        code, said = self._command(self._library.python, "-m", "mpifl", "doctor", "--ranks", "2").end()
        assert code == 0, said[-600:]
        assert "not recognised" not in said, "launcher not recognised"
        (told,) = (line for line in said.splitlines() if " MPI library " in line)
        return told.split(" MPI library ")[1].split("(MPI")[0].strip()


COLUMNS = {
    "library": "doctor",
    "1, 2, 3, 5 ranks": "ranks",
    "TERM": "term",
    "INT": "int_",
    "TERM at the start": "early",
    "a worker killed": "killed",
    "a silo fails": "failing",
    "298 MB": "large",
    "others' launchers": "mixed",
}


def rows(libraries: list[Library], words: list[str], folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each library's name and cells; words choose libraries and cells, by default all."""
    bits: dict[str, str] = {}
    chosen = [word for word in words if word in COLUMNS.values()] or list(COLUMNS.values())
    wanted = [word for word in words if word not in chosen]
    for library in libraries:
        if wanted and not any(word in library.name for word in wanted):
            continue
        cells, row = Cells(library, [one for one in libraries if one is not library], folder, bits), []
        for column, method in COLUMNS.items():
            began = time.monotonic()
            try:
                row.append(getattr(cells, method)() if method in chosen else "-")
            except AssertionError as error:
                row.append(f"**{error}**".replace("\n", " "))
            took = f"{time.monotonic() - began:.0f} s"
            print(f"{library.name}: {column}: {row[-1]} ({took})", file=sys.stderr, flush=True)
        yield library.name, row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("libraries", nargs="+")
    given = parser.parse_args()
    libraries = [Library(*one.split("|")) for one in given.libraries]
    table = [f"| from | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    with tempfile.TemporaryDirectory(prefix="matrix-") as name:
        folder = Path(name)
        (folder / "own.py").write_text(OWN)
        (folder / "job.toml").write_text(JOB)
        command = f"{sys.executable} -m data_prep partition digits --out shards {CUT}"
        subprocess.run(
            command.split(), cwd=folder, check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        table += [
            f"| {name} | {' | '.join(row)} |" for name, row in rows(libraries, given.only.split(), folder)
        ]
    print(f"Run on {time.strftime('%Y-%m-%d')}.\n", *table, sep="\n")
    return int(any("**" in line for line in table))


if __name__ == "__main__":
    sys.exit(main())
