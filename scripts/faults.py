"""Do harm to small trainings on 5 ranks at random moments, and count what becomes of them.

    python scripts/faults.py --runs 20                    # of each kind
    python scripts/faults.py --runs 5 --only worker server --job jobs/demo.toml --seed 3

One harm in five is done while the ranks start, the others at a moment of the training. A run has *survived*
if the command that was harmed ends with code 0 and the model, *resumed* if the command with --resume does
after it, else it is *lost*. `bits` counts models that are those of a run that nothing troubled. `noticed` is
the time from the kill to the line that says so: to notice, to find together, and to place the silos of the
dead.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # harm the tree that this file stands in, whatever is installed

from harmed_run import PATIENCE, RANKS, Run  # noqa: E402

from mpifl.run.job.job import read_job  # noqa: E402

EARLY = 0.2
"""The share of harms that is done while the ranks start."""
HURRIED_ROUNDS = 15
HURRY = ["--set", "cohort.deadline=0.5", "--set", f"rounds={HURRIED_ROUNDS}", "--set", "evaluate.every=5"]
"""For a rank that stops for ever: each round waits so long for it."""
DIFFERENT = ("exception", "nan", "stop")
"""Where a silo is missing from rounds, and the bits are others."""
KINDS = ("worker", "server", "server-mirror", "two", "everything", "exception", "nan", "stop")
JOB = """
name = "faults"
shards = "{shards}"
rounds = 60
seed = 1
[model]
name = "mlp"
[algorithm]
name = "trouble:Troubled"
[local]
lr = 0.02
batch_size = 16
[cohort]
quorum = 0.5
[checkpoint]
every = 5
"""
TROUBLE = """
import torch
from mpifl.algorithms import FedAvg

WHERE = []


class Troubled(FedAvg):
    def train(self, silo, w):
        if WHERE and (silo.id, silo.round) == (int(WHERE[1]), int(WHERE[2])):
            if WHERE[0] == "exception":
                raise ArithmeticError("the silo stumbles")
            return silo.update(delta=torch.full_like(w, float("nan")))
        return super().train(silo, w)
"""


MANY = """
import sys
from pathlib import Path

import mpifl
import trouble
from mpifl.wire.launching import leave

job, out, *troubles = sys.argv[1:]
for nth, where in enumerate(troubles):
    trouble.WHERE = where.split()
    mpifl.train(job, out=Path(out) / str(nth))
leave(0)
"""
"""Many trainings in one world, each with a silo that stumbles."""
STUMBLES = ("exception", "nan")


@dataclass
class Tally:
    """What became of the runs of one kind."""

    outcomes: Counter[str] = field(default_factory=Counter)
    same: int = 0
    noticed: list[float] = field(default_factory=list)


class Yard:
    """Where the runs lie, how long an untroubled one takes and what it comes to."""

    def __init__(self, folder: Path, job: Path, moments: random.Random) -> None:
        self._folder, self.job, self._moments = folder, job, moments
        self._nth = 0
        whole = Run(self._next(), job)
        code = whole.end()
        if code != 0:
            sys.exit("the untroubled run failed:\n" + "\n".join(line for _, line in whole.lines))
        self.seconds = time.monotonic() - whole.began
        self.wanted = whole.model()
        rounds = [json.loads(line) for line in (whole.run / "metrics.jsonl").read_text().splitlines()]
        self.rounds = len(rounds)
        self.training = rounds[-1]["time"] - rounds[0]["time"]
        self.begins = self.seconds - self.training - 0.5
        sys.path.append(str(job.parent))  # where its algorithm may lie, for the ranks too
        self.silos = len(json.loads(Path(read_job(job).shards, "federation.json").read_text())["silos"])

    def _next(self) -> Path:
        self._nth += 1
        folder = self._folder / str(self._nth)
        folder.mkdir(parents=True)
        return folder

    def stumble(self, kind: str, runs: int, tally: Tally) -> None:
        """Have a silo stumble in each of some runs, all in one world."""
        silo, round = self._moments.randrange, self._moments.randrange
        troubles = [f"{kind} {silo(self.silos)} {round(self.rounds)}" for _ in range(runs)]
        folder = self._next()
        many = Run(folder, self.job, start=[self.job.parent / "many.py", self.job, folder / "run", *troubles])
        many.end(PATIENCE + 30 * runs)
        for nth, trouble in enumerate(troubles):
            run = many.run / str(nth)
            records = (run / "metrics.jsonl").read_text().splitlines() if run.exists() else []
            told = trouble.split()[1] in (
                json.loads(records[int(trouble.split()[2])])["faults"] if records else {}
            )
            tally.outcomes["survived" if told and (run / "model.safetensors").exists() else "lost"] += 1

    def harm(self, kind: str, tally: Tally) -> str:
        """Do one harm; return what became of it."""
        more = (
            ["--set", "checkpoint.mirror=true"]
            if kind == "server-mirror"
            else HURRY
            if kind == "stop"
            else []
        )
        folder = self._next()
        run = Run(folder, self.job, *more)
        early = kind != "stop" and self._moments.random() < EARLY
        rounds = HURRIED_ROUNDS if kind == "stop" else self.rounds
        moment = self._moments.uniform(0, self.begins if early else rounds)
        run.pass_time(moment) if early else run.pass_rounds(moment, self.training / self.rounds)
        hit = time.monotonic()
        self._hit(kind, run)
        code = run.end()
        told = next((at - hit for at, line in run.lines if " died" in line), None)
        if told is not None:
            tally.noticed.append(told)
        outcome = "survived" if code == 0 and run.model() else ""
        if not outcome:
            again = Run(folder, self.job, "--resume", *more)
            outcome = "resumed" if again.end() == 0 and again.model() else "lost"
            outcome += " (hung)" if code is None else ""
            if outcome.startswith("lost"):
                print("\n".join(f"    {line}" for _, line in again.lines[-25:]))
            if not early and kind != "everything":
                print("\n".join(f"    {line}" for _, line in run.lines[-25:]))
        tally.outcomes[outcome] += 1
        tally.same += run.model() == self.wanted
        where = f"{moment:.2f} s of the start" if early else f"{moment:.2f} rounds"
        return f"{kind} at {where}: rc {code}, {outcome}, noticed {told and round(told * 1e3)} ms"

    def _hit(self, kind: str, run: Run) -> None:
        if kind == "worker":
            run.signal(signal.SIGKILL, self._moments.randrange(1, RANKS))
        elif kind in ("server", "server-mirror"):
            run.signal(signal.SIGKILL, 0)
        elif kind == "two":
            run.signal(signal.SIGKILL, *self._moments.sample(range(RANKS), 2))
        elif kind == "everything":
            run.kill()
        elif kind == "stop":
            run.signal(signal.SIGSTOP, self._moments.randrange(1, RANKS))


def _job(folder: Path) -> Path:
    """Make the small job, with its shards."""
    shards, job = folder / "digits", folder / "job.toml"
    cut = ["-m", "data_prep", "partition", "digits", "--seed", "7", "--silos", "7", "--out", str(shards)]
    cut += ["--scheme", "dirichlet", "--alpha", "0.5", "--test", "0.2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, *cut], check=True, stdout=subprocess.DEVNULL, env=environment)
    (folder / "trouble.py").write_text(TROUBLE)
    (folder / "many.py").write_text(MANY)
    job.write_text(JOB.format(shards=shards))
    return job


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=KINDS, help="these kinds of harm")
    parser.add_argument(
        "--job", type=Path, help=f"an own job; its silos do not stumble, so not {', '.join(STUMBLES)}"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    kinds = [kind for kind in given.only or KINDS if not (given.job and kind in STUMBLES)]
    if not kinds:
        parser.error(f"--only {' '.join(given.only)}: with --job, no silo stumbles")
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        yard = Yard(Path(folder) / "runs", given.job or _job(Path(folder)), random.Random(given.seed))
        print(
            f"untroubled: {yard.seconds:.1f} s, of which {yard.begins:.1f} s to begin, {yard.rounds} rounds",
            flush=True,
        )
        tallies = {kind: Tally() for kind in kinds}
        for kind in set(STUMBLES).intersection(tallies):
            yard.stumble(kind, given.runs, tallies[kind])
        for nth in range(given.runs):
            for kind, tally in tallies.items():
                if kind in STUMBLES:
                    continue
                print(f"{nth + 1}: {yard.harm(kind, tally)}", flush=True)
    print(f"\n{'kind':14} {'outcomes':44} {'bits':>7}  noticed ms: median, longest")
    for kind, tally in tallies.items():
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(tally.outcomes.items()))
        times = [1e3 * seconds for seconds in tally.noticed]
        noticed = f"{statistics.median(times):.0f}, {max(times):.0f}" if times else "-"
        same = "-" if kind in DIFFERENT else f"{tally.same}/{tally.outcomes.total()}"
        print(f"{kind:14} {outcomes:44} {same:>7}  {noticed}")


if __name__ == "__main__":
    main()
