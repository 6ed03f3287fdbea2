"""`mpifl selftest`: an installation proves itself by its files and by small trainings."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import mpifl
from mpifl.common import InputError
from mpifl.common.machine import native
from mpifl.report.observers import Observer, Record
from mpifl.sums import kernels
from mpifl.wire.launching import library, own_launcher

DIES_AT = 13
"""The round in which the server is killed: between two checkpoints."""
JOB = """
name = "selftest"
shards = "shards"
seed = 7
rounds = 20
model.name = "mlp"
algorithm.name = "scaffold"
local = {lr = 0.05, steps = 4, batch_size = 8}
checkpoint.every = 5
"""
CUT = "partition synthetic --out shards --scheme natural --seed 7 --test 0.2"
CUT += " --option alpha=1 --option beta=1 --option silos=4"
PATIENCE = 120
"""Seconds that a training may take; alone on a machine it takes five."""


class Dies(Observer):
    """Kills its rank in a round, as a lost node would."""

    def round(self, record: Record) -> None:
        """Kill the rank if this is the round."""
        if record["round"] == DIES_AT:
            os.kill(os.getpid(), signal.SIGKILL)


class NotWhole(Exception):
    """The installation is not as it should be."""


def try_installation(say: Callable[[str], None]) -> bool:
    """Look at the installed files, the MPI library, and trainings that must give the same bits.

    Args:
        say: Called with a line for each part.

    Returns:
        Whether all is well.
    """
    well = True
    with tempfile.TemporaryDirectory(prefix="mpifl-selftest-") as scratch:
        trial = SmallTrainings(Path(scratch))
        for part in (files, mpi, trial.alone, trial.ranks, trial.resumed, trial.kernels):
            try:
                say(f"ok    {part()}")
            except (NotWhole, InputError, subprocess.TimeoutExpired) as error:
                well = False
                say(f"bad   {error}")
    say("all is well" if well else "this installation is not whole: see the lines above")
    return well


def files(folder: Path = Path(mpifl.__file__).parent, at: metadata.Distribution | None = None) -> str:
    """Hold the package's files against the list that the wheel brought.

    Args:
        folder: The package.
        at: What is installed; by default mpifl.

    Raises:
        NotWhole: a file is missing or altered, or a module is in no list.
    """
    at = at or metadata.distribution("mpifl")
    listed = {Path(str(at.locate_file(one))): one.hash for one in at.files or () if one.hash}
    if folder / "__init__.py" not in listed:
        return f"files: not looked at, since {folder} comes from no wheel"
    missing = [path for path in listed if not path.is_file()]
    altered = [path for path, known in listed.items() if path not in missing and _digest(path) != known.value]
    others = [path for path in folder.rglob("*.py") if path not in listed]
    for what, found in (("missing", missing), ("altered", altered), ("not of this version", others)):
        if found:
            more = f" and {len(found) - 1} more" * (len(found) > 1)
            raise NotWhole(f"files: {found[0]}{more}: {what}; install mpifl {mpifl.__version__} anew")
    return f"files: {len(listed)} of mpifl {mpifl.__version__} are as in its wheel"


def _digest(path: Path) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()


def mpi() -> str:
    """Find the MPI library and its launcher.

    Raises:
        InputError: one of them is not to be had.
    """
    return f"MPI: {library()}, started by {own_launcher()[0]}"


class SmallTrainings:
    """Trainings of one small job in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.bits = folder, ""

    def alone(self) -> str:
        """Train on one rank, whose model the others are held against."""
        self._run("data_prep", *CUT.split())
        (self._folder / "job.toml").write_text(JOB)
        self.bits = self._train("alone")
        return f"training: 20 rounds on one rank, model {self.bits[:16]}"

    def ranks(self) -> str:
        """Train on three ranks."""
        return self._same("three ranks", self._train("three", "--ranks", "3"))

    def resumed(self) -> str:
        """Kill the server of three ranks, and continue."""
        observer = f"tracking.observers=['{__name__}:Dies']"
        died = self._run("mpifl", *self._words("killed"), "--ranks", "3", "--set", observer, fails=True)
        rounds = (self._folder / "killed" / "metrics.jsonl").read_text().count("\n") if died else 0
        if not DIES_AT - 1 <= rounds <= DIES_AT:
            raise NotWhole(f"kill and resume: the killed training has {rounds} rounds, not {DIES_AT}")
        return self._same("killed and resumed", self._train("killed", "--ranks", "3", "--resume"))

    def kernels(self) -> str:
        """Train without the compiled loops."""
        if not kernels.compiled():
            return "kernels: there is no C compiler, so that loops run as tensor operations"
        return self._same(
            "compiled loops and tensor operations", self._train("plain", **{native.WITHOUT: "tensors"})
        )

    def _same(self, what: str, bits: str) -> str:
        if not self.bits or bits != self.bits:
            raise NotWhole(f"{what}: model {bits[:16]}, and of one rank {self.bits[:16] or 'none'}")
        return f"{what}: the same bits"

    def _words(self, run: str) -> list[str]:
        return ["train", "job.toml", "--out", run]

    def _train(self, run: str, *words: str, **more: str) -> str:
        self._run("mpifl", *self._words(run), *words, more=more)
        return hashlib.sha256((self._folder / run / "model.safetensors").read_bytes()).hexdigest()

    def _run(
        self, module: str, *words: str, fails: bool = False, more: Mapping[str, str] | None = None
    ) -> bool:
        """Run a command in the folder; return whether it has failed, as it may if `fails`."""
        command = [sys.executable, "-m", module, *words]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env={**os.environ, **(more or {})},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode and not fails:
            said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise NotWhole(
                f"mpifl {' '.join(words)}: exit code {done.returncode}: {said[-1] if said else ''}"
            )
        return bool(done.returncode)
