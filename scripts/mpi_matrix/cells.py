"""What is tried under a library: each method of `Cells` is a column of the table."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from scripts.mpi_matrix.commands import PATIENCE, Command, Library

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
"""`own.py` beside the job."""
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
"""How the digits are partitioned."""
FAILING = ("--set", "algorithm.name=own:Failing")
LARGE = ("--set", "model.hidden=[8192, 9000]", "--set", "rounds=1", "--set", "local.batch_size=512")
"""A model of 298 MB."""
DIED = "ranks died, and the training ended with them"


class Cells:
    """Each returns what the table says, and raises AssertionError where what is promised does not hold.

    Promised are the bits of one rank, an exit code, one line of ours, and that nothing is left.

    Args:
        library: The one that is tried.
        others: Whose launchers are tried with it.
        folder: Has the shards, `own.py` and `job.toml`.
        bits: The sha256 of the first model that was trained so, by name; of all libraries.
    """

    def __init__(self, library: Library, others: list[Library], folder: Path, bits: dict[str, str]) -> None:
        self._library, self._others, self._folder, self._bits = library, others, folder, bits

    def doctor(self) -> str:
        """What the doctor calls the library; it recognises its launcher."""
        code, said = self._command([*self._mpifl(), "doctor", "--ranks", "2"]).end()
        assert code == 0, said[-600:]
        assert "not recognised" not in said, "launcher not recognised"
        (told,) = (line for line in said.splitlines() if " MPI library " in line)
        return told.split(" MPI library ")[1].split("(MPI")[0].strip()

    def ranks(self) -> str:
        """Train by the library's launcher."""
        for n in (1, 2, 3, 5):
            self._whole(f"by {n}", [*(self._library.start(n) if n > 1 else []), *self._train(f"by {n}")])
        return self._short("steady")

    def term(self) -> str:
        """TERM to the command on five ranks; the rest on two."""
        return self._signalled(signal.SIGTERM, 5, 2)

    def int_(self) -> str:
        """INT to the command on two ranks; the rest on three."""
        return self._signalled(signal.SIGINT, 2, 3)

    def early(self) -> str:
        """TERM as soon as the launcher has started something: no checkpoint, and no accident."""
        command = self._command(self._train("early", ranks=2))
        while len(command.processes()) < 3 and command.runs:
            time.sleep(0.005)
        command.send(signal.SIGTERM)
        code, said = command.end()
        assert code == 75, f"{code}: {said[-300:]}"
        return "75"

    def killed(self) -> str:
        """KILL to a worker: one line of ours, whatever code the launcher ends with."""

        def kill(command: Command) -> None:
            ranks = json.loads((self._run("killed") / "environment.json").read_text())["ranks"]
            command.send(signal.SIGKILL, int(ranks["1"]["pid"]))

        code, said = self._interrupted("killed", 3, kill)
        assert DIED in said.splitlines()[-1], said[-300:]
        assert code == 4 or code > 128, str(code)
        self._whole("killed", self._train("killed", "--resume", ranks=3))
        return f"{code}, one line, resumed"

    def failing(self) -> str:
        """A silo that fails in every round: the others train on."""
        self._whole("failing", self._train("failing", *FAILING, ranks=3), what="failing")
        return self._short("failing")

    def large(self) -> str:
        """A model of 298 MB."""
        self._whole("large", self._train("large", *LARGE, ranks=3), what="large")
        shutil.rmtree(self._run("large"))
        return self._short("large")

    def mixed(self) -> str:
        """The other libraries' launchers: they bring ranks together, or one line says why not."""
        works = []
        for other in self._others:
            run = f"mixed {other.name}"
            code, said = self._command([*other.start(2), *self._train(run)]).end()
            if code == 0:
                self._same(run, "steady")
                works.append(other.name)
                continue
            lines = said.splitlines()
            ours = sum(line.startswith("error: MPI: ") for line in lines)
            assert ours == 1, f"{other.name}: {code}, {ours} of {len(lines)} lines are ours"
        return "refused" + (f"; works: {', '.join(works)}" if works else "")

    def _mpifl(self) -> list[str]:
        return [self._library.python, "-m", "mpifl"]

    def _run(self, run: str) -> Path:
        return self._folder / f"{self._library.name} {run}".replace(" ", "_")

    def _train(self, run: str, *more: str, ranks: int = 0) -> list[str]:
        """Return the command that trains in a run folder, with `--ranks` if they are given."""
        start = ["--ranks", str(ranks)] if ranks else []
        return [*self._mpifl(), "train", "job.toml", "--out", str(self._run(run)), *start, *more]

    def _command(self, command: list[str]) -> Command:
        return Command(command, self._library, self._folder)

    def _whole(self, run: str, command: list[str], what: str = "steady") -> None:
        """Train to the end, and hold the model against the first that was trained so."""
        code, said = self._command(command).end()
        assert code == 0, f"{code}: {said[-300:]}"
        self._same(run, what)

    def _same(self, run: str, what: str) -> None:
        found = hashlib.sha256((self._run(run) / "model.safetensors").read_bytes()).hexdigest()
        assert found == self._bits.setdefault(what, found), "other bits"

    def _short(self, what: str) -> str:
        return f"sha256 {self._bits[what][:8]}"

    def _signalled(self, number: signal.Signals, before: int, after: int) -> str:
        """A signal on so many ranks leaves a checkpoint, from which others continue to the same bits."""
        run = number.name
        code, said = self._interrupted(run, before, lambda command: command.send(number))
        assert code == 75, f"{code}: {said[-300:]}"
        self._whole(run, self._train(run, "--resume", ranks=after))
        return "75, resumed"

    def _interrupted(self, run: str, ranks: int, act: Callable[[Command], None]) -> tuple[int, str]:
        """Act on a training after three of its rounds; return its exit code and what it said."""
        command = self._command(self._train(run, ranks=ranks))
        metrics, until = self._run(run) / "metrics.jsonl", time.monotonic() + PATIENCE
        while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
            assert time.monotonic() < until, "no round came"
            assert command.runs, f"ended before: {command.end()}"
            time.sleep(0.02)
        act(command)
        return command.end()


COLUMNS = {
    "library": Cells.doctor,
    "1, 2, 3, 5 ranks": Cells.ranks,
    "TERM": Cells.term,
    "INT": Cells.int_,
    "TERM at the start": Cells.early,
    "a worker killed": Cells.killed,
    "a silo fails": Cells.failing,
    "298 MB": Cells.large,
    "others' launchers": Cells.mixed,
}
