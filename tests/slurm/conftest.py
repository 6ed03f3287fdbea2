"""A real SLURM of three nodes for the tests of this folder, and what they train in it."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT, rank_environment
from device.conftest import library as library

TESTBED = ROOT / "scripts" / "slurm_testbed.sh"
ROUNDS = 150
"""Of the trainings that something happens to: long enough for it to happen in their midst."""


class Slurm:
    """A testbed that is up, and the folder in which jobs are submitted.

    Args:
        as_user: Whether commands run as the testbed's user.
    """

    def __init__(self, at: Path, yard: Path, environment: dict[str, str], as_user: bool = False) -> None:
        self.yard, self._at = yard, at
        self._prefix = ["bash", str(TESTBED), "as-user"] if as_user else []
        self.environment = {**environment, "SLURM_CONF": str(at / "slurm.conf")}

    def call(self, *command: str | Path, code: int = 0, seconds: float = 60, **more: str) -> str:
        """Run a command in the yard, with more in its environment; return what it prints."""
        done = subprocess.run(
            [*self._prefix, *map(str, command)],
            cwd=self.yard,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip() if code == 0 else done.stderr.strip()

    def testbed(self, *arguments: str) -> str:
        return self.call("bash", TESTBED, *arguments)

    def submit(self, run: str, *more: str, nodes: int = 2, code: int = 0, **environment: str) -> str:
        """Submit the demo's job by `mpifl submit`; return its number."""
        command = [sys.executable, "-m", "mpifl", "submit", "jobs/demo.toml", "--out", run]
        command += [] if "--nodes" in more else ["--nodes", str(nodes)]
        return self.call(*command, *more, code=code, **environment)

    def field(self, job: str, name: str) -> str:
        """What `scontrol show job` says of a job: its JobState, Restarts, Reason, ..."""
        fields = [
            word
            for word in self.call("scontrol", "show", "job", "-o", job).split()
            if word.startswith(f"{name}=")
        ]
        return fields[0].partition("=")[2]

    def until(self, happened: Callable[[], bool], what: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, (
                f"waited too long for {what}\n{self.call('squeue')}\n{self._logs()}"
            )
            time.sleep(0.05)

    def until_round(self, run: str, round: int) -> None:
        path = self.yard / run / "metrics.jsonl"
        self.until(
            lambda: path.exists() and path.read_bytes().count(b"\n") >= round, f"round {round} of {run}"
        )

    def until_started_again(self, job: str, seconds: float = 120, times: int = 1) -> None:
        """Wait until a job was queued again,
        and have it start now where SLURM would keep it back for two minutes."""
        self.until(lambda: self.field(job, "Restarts") == str(times), "the job to be queued again", seconds)
        self.until(lambda: self.field(job, "JobState") != "COMPLETING", "the first start to be cleared away")
        # word of the first start's end may come late, and would end the second; hence SLURM's delay
        time.sleep(5)
        if self.field(job, "JobState") == "PENDING":
            for part in (
                line.split()[0] for line in self.call("scontrol", "show", "job", "-o", job).splitlines()
            ):
                self.call("scontrol", "update", part, "StartTime=now")

    def until_ended(self, job: str) -> str:
        """Wait for a job's end; return its state."""
        running = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
        self.until(lambda: self.field(job, "JobState") not in running, f"the end of job {job}")
        return self.field(job, "JobState")

    def completes(self, job: str) -> None:
        """Wait for a job's end; fail unless it is a good one."""
        state = self.until_ended(job)
        assert state == "COMPLETED", f"job {job}: {state}\n{self._logs()}"

    def model(self, run: str) -> str:
        """The sha256 of a run's model."""
        return hashlib.sha256((self.yard / run / "model.safetensors").read_bytes()).hexdigest()

    def processes(self, run: str) -> list[str]:
        """The processes on all nodes that have to do with a run."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            found += [f"{path.parent.name}: {b' '.join(words).decode()}"] if run.encode() in words else []
        return found

    def _logs(self) -> str:
        logs = [*self.yard.glob("*.out"), *self.yard.glob("runs/*.log"), self._at / "slurmctld.log"]
        return "\n".join(f"{path}\n{path.read_text(errors='replace')[-1500:]}" for path in logs)


@contextmanager
def running(
    yard: Path, nodes: int = 3, user: str = "", of_user: Mapping[str, str] | None = None
) -> Iterator[Slurm]:
    """Run a SLURM of its own while the context lasts; skip the test where there can be none.

    Args:
        user: NAME:NUMBER of the Unix user of its daemons, jobs and commands; "" for root.
        of_user: What this user's commands see.
    """
    at = Path(tempfile.mkdtemp(prefix="mpifl-slurm-"))  # short, since munge's socket lies in it
    foreign = ("OMPI_", "PRTE_", "PMIX_", "SLURM_", "SBATCH_")
    environment = {name: value for name, value in rank_environment().items() if not name.startswith(foreign)}
    environment |= {
        **(slurm := {"MPIFL_SLURM": str(at), **({"MPIFL_SLURM_USER": user} if user else {})}),
        "PATH": os.pathsep.join(
            [str(Path(sys.prefix) / "bin"), environment["PATH"], "/usr/sbin", "/usr/bin"]
        ),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left running then either
    said = at.with_suffix(".out")  # a file, since the daemons hold on to what they are given
    try:
        with said.open("wb") as out:
            code = subprocess.run(
                ["bash", str(TESTBED), "start", str(nodes)],
                env=environment,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                timeout=300,
            ).returncode
        if code == 77:
            pytest.skip(said.read_text().strip())
        assert code == 0, said.read_text()
        yield Slurm(at, yard, {**of_user, **slurm} if of_user else environment, bool(user))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.run(["bash", str(TESTBED), "stop"], env=environment, check=True, timeout=180)
        said.unlink()
        signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def slurm(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A SLURM of three nodes; a test that needs it is skipped where there can be none."""
    if "MPIFL_SLURM_TESTS" not in os.environ:
        pytest.skip("bash scripts/slurm_tests.sh runs these, and installs a SLURM for them")
    yard = tmp_path_factory.mktemp("yard")
    (yard / "jobs").symlink_to(ROOT / "jobs")
    (yard / "shards").symlink_to(digits)
    (yard / ".venv" / "bin").mkdir(parents=True)
    (yard / ".venv" / "bin" / "activate").write_text(f"PATH={Path(sys.prefix) / 'bin'}:$PATH\n")
    with running(yard) as found:
        yield found


@pytest.fixture(scope="session")
def alone(slurm: Slurm) -> dict[int, str]:
    """The sha256 of the models that one rank makes without SLURM and without trouble,
    by the number of rounds."""
    for rounds in (30, ROUNDS):
        more = ["--out", f"runs/alone{rounds}", "--set", f"rounds={rounds}"]
        slurm.call(sys.executable, "-m", "mpifl", "train", "jobs/demo.toml", *more)
    return {rounds: slurm.model(f"runs/alone{rounds}") for rounds in (30, ROUNDS)}
