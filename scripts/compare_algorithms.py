"""Train every job of jobs/algorithms on real data, each on one rank, and print what it reaches as Markdown tables.

MNIST runs once, the four hospitals over several seeds, for their test sets are small; a figure is then the mean.
How the jobs' hyperparameters were found: scripts/search_hyperparameters.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run the tree that this file stands in, whatever is installed

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
Record = dict[str, Any]
Task = tuple[Path, Path, tuple[str, ...]]
AT_A_TIME = 2
QUICK_ROUNDS = 3


@dataclass(frozen=True)
class Data:
    """A data set of the comparison: how it is cut, and with which seeds; `shards` is the folder that jobs name."""

    shards: str
    cut: tuple[str, ...]
    seeds: tuple[int, ...]

    def partition(self, seed: int) -> Path:
        """Cut the data, unless it has been, and return the shard folder."""
        out = Path(self.shards if seed == self.seeds[0] else f"{self.shards}-seed{seed}")
        if not out.exists():
            words = ["-m", "data_prep", "partition", *self.cut, "--seed", str(seed), "--out", str(out)]
            subprocess.run([sys.executable, *words], check=True, env=ENVIRONMENT)
        return out


DATA = {
    "mnist": Data(
        "shards/mnist-dirichlet0.1",
        ("mnist", "--silos", "20", "--scheme", "dirichlet", "--alpha", "0.1", "--test", "0.2", "--public", "0.05"),
        (7,),
    ),
    "heart": Data("shards/heart", ("heart-disease", "--scheme", "natural", "--test", "0.34"), (7, 8, 9, 10, 11)),
}


def train(task: Task) -> str:
    """Train a job in this process, or go on with it; note its processor seconds, and return why it was lost, if so."""
    from mpifl.errors import RoundLost
    from mpifl.train import train as run
    from mpifl.transport import world

    job, out, overrides = task
    began, note = time.process_time(), out / "cpu_seconds"
    try:
        run(job, out, overrides, True, world())
    except RoundLost as lost:  # by a NaN of every silo, most likely
        return str(lost)
    if not note.exists():  # and not a run that had been finished before
        note.write_text(f"{time.process_time() - began:.2f}\n")
    return ""


def train_all(tasks: list[Task]) -> list[str]:
    """Train jobs, two at a time; return why each was lost, if it was."""
    with ProcessPoolExecutor(AT_A_TIME, mp_context=get_context("spawn")) as pool:
        ends: list[str] = []
        for task, lost in zip(tasks, pool.map(train, tasks), strict=True):
            ends.append(lost)
            print(f"{len(ends)}/{len(tasks)} {task[1]} {lost}", file=sys.stderr, flush=True)
    return ends


def records(run: Path) -> list[Record]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def hospitals(run: Path) -> list[tuple[float, int]]:
    """Return the accuracy of the model that each silo ends with on its test rows, and their number."""
    import torch
    from safetensors.torch import load_file

    from mpifl import models
    from mpifl.job import read_job
    from mpifl.shards import open_shard, read_federation

    job = read_job(run / "job.toml")
    spec = read_federation(Path(job.shards))
    module = models.build(job.model.name, job.model.arguments, spec.features, spec.classes, job.seed).eval()
    found = []
    for entry in spec.silos:
        own = run / "personal" / f"silo_{entry.silo:04d}.safetensors"
        module.load_state_dict(load_file(own if own.exists() else run / "model.safetensors"))
        split = open_shard(Path(job.shards), entry, spec)["test"]
        right = module(torch.tensor(split.x)).argmax(1) == torch.tensor(split.y)
        found.append((float(right.float().mean()), len(right)))
    return found


def mnist_row(runs: list[Path]) -> list[str]:
    (run,) = runs
    rounds = records(run)
    tested = [r["test_accuracy"] for r in rounds if "test_accuracy" in r]
    reached = next((str(r["round"]) for r in rounds if r.get("test_accuracy", 0) >= 0.9), "–")
    accuracy = [percent(tested[-1]), percent(mean(tested[-10:])), percent(max(tested))] if tested else ["–"] * 3
    silos = [percent(rounds[-1][f"silo_accuracy_{name}"]) for name in ("mean", "worst", "std")]
    return [*accuracy, *silos, reached if tested else "–", megabytes(rounds), f"{seconds(runs):.0f}"]


def heart_row(runs: list[Path]) -> list[str]:
    """Return means over the seeds; pooled is over all test rows alike, the spread that over the seeds."""
    found = [hospitals(run) for run in runs]
    each = [percent(mean(accuracy)) for accuracy in zip(*([a for a, _ in silos] for silos in found), strict=True)]
    pooled = [sum(a * n for a, n in silos) / sum(n for _, n in silos) for silos in found]
    last = [records(run)[-1] for run in runs]
    silos = [percent(mean(r[f"silo_accuracy_{name}"] for r in last)) for name in ("mean", "worst", "std")]
    spread = f"{percent(mean(pooled))} ± {100 * pstdev(pooled):.1f}"
    return [spread, *each, *silos, megabytes(records(runs[0])), f"{seconds(runs) / len(runs):.1f}"]


HEADINGS = {
    "mnist": "test accuracy %|last ten|best|silos' mean %|worst|std|rounds to 90 %|MB a round|CPU s",
    "heart": "all rows %|Cleveland|Hungary|Switzerland|VA|hospitals' mean %|worst|std|MB a round|CPU s",
}
TITLES = {
    "mnist": "K = 20 by Dirichlet with alpha = 0.1, 2NN, C = 0.5, E = 1, B = 32, 50 rounds, seed 7",
    "heart": "four hospitals, a perceptron of 16 hidden units, E = 2, B = 16, 50 rounds, means over 5 seeds",
}
ROWS = {"mnist": mnist_row, "heart": heart_row}


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def megabytes(rounds: list[Record]) -> str:
    size = mean(r["bytes_sent"] + r["bytes_received"] for r in rounds) / 1e6
    return f"{size:.1f}" if size >= 0.1 else f"{size:.4f}"


def seconds(runs: list[Path]) -> float:
    return sum(float((run / "cpu_seconds").read_text()) for run in runs)


def compare(data: str, jobs: list[Path], out: Path, quick: bool) -> str:
    """Train the jobs of a data set; return their table."""
    seeds = DATA[data].seeds[:1] if quick else DATA[data].seeds
    runs = {job: [out / f"{job.stem}-seed{seed}" for seed in seeds] for job in jobs}
    folders = {seed: DATA[data].partition(seed) for seed in seeds}
    fixed = ("tracking.console=false", *([f"rounds={QUICK_ROUNDS}"] if quick else []))
    each = [(job, run, seed) for job in jobs for run, seed in zip(runs[job], seeds, strict=True)]
    lost = train_all([(job, run, (f"shards={folders[seed]}", f"seed={seed}", *fixed)) for job, run, seed in each])
    if any(lost):
        raise SystemExit(f"error: {next(filter(None, lost))}")
    head = ["algorithm", *HEADINGS[data].split("|")]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    lines += [[job.stem.partition("-")[2], *ROWS[data](runs[job])] for job in jobs]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def jobs_of(data: str, only: list[str]) -> list[Path]:
    jobs = sorted((ROOT / "jobs" / "algorithms").glob(f"{data}-*.toml"))
    return [job for job in jobs if not only or job.stem in only or job.stem.partition("-")[2] in only]


def options_of(about: str | None, folder: str) -> argparse.Namespace:
    """Read the command line; `out` is a folder that is there."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds of each, to see that all work")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these jobs or algorithms")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA), help="(%(default)s)")
    parser.add_argument("--out", type=Path, help=f"runs and tables go here, and go on here (runs/{folder})")
    options = parser.parse_args()
    options.out = options.out or Path("runs", f"{folder}-quick" if options.quick else folder)
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    options = options_of(__doc__, "algorithms")
    for data in options.data:
        table = compare(data, jobs_of(data, options.only), options.out, options.quick)
        (options.out / f"{data}.md").write_text(table)
        print(f"{data}: {TITLES[data]}\n\n{table}", flush=True)


if __name__ == "__main__":
    main()
