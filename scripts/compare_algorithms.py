"""Train every job of jobs/algorithms on real data, each on one rank, and print what it reaches as Markdown
tables.

MNIST runs once unless --seeds names more, the four hospitals over several seeds, for their test sets are
small; a figure is then the mean. How the jobs' hyperparameters were found: scripts/search_hyperparameters.py.
What docs/explanation/algorithms.md shows:
    python scripts/compare_algorithms.py --data mnist --seeds 7 8 9 --rounds 30 --figures docs/figures
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# run the tree that this file stands in, whatever is installed
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from algorithm_tables import COSTS, HEADINGS, ROWS, TITLES, cost_row, records, table  # noqa: E402

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
Task = tuple[Path, Path, tuple[str, ...]]
QUICK_ROUNDS = 3


@dataclass(frozen=True)
class Data:
    """A data set of the comparison: how it is cut, and with which seeds;
    `shards` is the folder that jobs name."""

    shards: str
    cut: tuple[str, ...]
    seeds: tuple[int, ...]
    quick: tuple[str, ...]
    """What stands for it where it only matters that all works."""

    def partition(self, seed: int, quick: bool = False) -> Path:
        """Cut the data, unless it has been, and return the shard folder."""
        out = Path(self.shards if seed == self.seeds[0] else f"{self.shards}-seed{seed}")
        out = out.with_name(f"{out.name}-quick") if quick else out
        if not out.exists():
            cut = self.quick if quick else self.cut
            words = ["-m", "data_prep", "partition", *cut, "--seed", str(seed), "--out", str(out)]
            if code := subprocess.run([sys.executable, *words], env=ENVIRONMENT).returncode:
                raise SystemExit(code)  # it has said why
        return out


SKEWED = ("--scheme", "dirichlet", "--alpha", "0.1", "--test", "0.2", "--no-stratify")
SKEWED += ("--public", "0.05")
HEART = ("heart-disease", "--scheme", "natural", "--test", "0.34")
DATA = {
    "mnist": Data(
        "shards/mnist-dirichlet0.1",
        ("mnist", "--silos", "20", *SKEWED),
        (7,),
        ("digits", "--silos", "4", *SKEWED),
    ),
    "heart": Data("shards/heart", HEART, (7, 8, 9, 10, 11), HEART),
}


def train(task: Task) -> str:
    """Train a job in this process, or continue it; note its processor seconds, and return why it was lost,
    if so.

    Raises:
        InputError: it cannot be trained, or its folder holds a run of another job.
    """
    from mpifl.common.errors import InputError, RoundLost
    from mpifl.run.folder.environment import why_lost
    from mpifl.training.loop import train as run
    from mpifl.wings import wings_of
    from mpifl.wire.launching.joining import world

    job, out, overrides = task
    if before := why_lost(out):
        return before
    began, note = time.process_time(), out / "cpu_seconds"
    rounds = len(records(out)) if note.exists() else 0
    try:
        run(job, out, overrides, True, world(), wings_of=wings_of)
    except RoundLost as lost:  # by a NaN of every silo, most likely
        return str(lost)
    except InputError as error:  # one of several arguments would not travel between processes
        raise InputError(str(error)) from None
    if len(records(out)) > rounds:  # and not a run that had been finished before
        spent = float(note.read_text()) if rounds else 0.0
        note.write_text(f"{spent + time.process_time() - began:.2f}\n")
    return ""


def train_all(tasks: list[Task], at_a_time: int) -> list[str]:
    """Train jobs, so many at a time; return why each was lost, if it was."""
    from mpifl.common.errors import InputError

    ends: list[str] = []
    try:
        with ProcessPoolExecutor(at_a_time, mp_context=get_context("spawn")) as pool:
            for task, lost in zip(tasks, pool.map(train, tasks), strict=True):
                ends.append(lost)
                print(f"{len(ends)}/{len(tasks)} {task[1]} {lost}", file=sys.stderr, flush=True)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    return ends


def run_all(data: str, options: argparse.Namespace) -> dict[str, list[Path]]:
    """Train the jobs of a data set over the seeds; return the runs of each algorithm that were not lost."""
    seeds = (options.seeds or DATA[data].seeds)[: 1 if options.quick else None]
    folders = {seed: DATA[data].partition(seed, options.quick) for seed in seeds}
    rounds = QUICK_ROUNDS if options.quick else options.rounds
    fixed = ("tracking.console=false", *([f"rounds={rounds}"] if rounds else []))
    each = [
        (job, options.out / f"{job.stem}-seed{seed}", seed)
        for job in jobs_of(data, options.only)
        for seed in seeds
    ]
    tasks = [(job, run, (f"shards={folders[seed]}", f"seed={seed}", *fixed)) for job, run, seed in each]
    runs: dict[str, list[Path]] = {}
    for (job, run, _), lost in zip(each, train_all(tasks, options.at_a_time), strict=True):
        name = job.stem.partition("-")[2]
        runs.setdefault(name, []).extend([] if lost else [run])
    return {
        name if len(of) == len(seeds) else f"{name} ({len(of)} of {len(seeds)} seeds)": of
        for name, of in runs.items()
    }


def jobs_of(data: str, only: list[str]) -> list[Path]:
    jobs = sorted((ROOT / "jobs" / "algorithms").glob(f"{data}-*.toml"))
    return [job for job in jobs if not only or job.stem in only or job.stem.partition("-")[2] in only]


def options_of(about: str | None, folder: str, given: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; `out` is a folder that is there."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds on tiny data, to see that it works"
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these jobs or algorithms")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA), help="(%(default)s)")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="SEED", help="of the cut and of the job")
    parser.add_argument("--rounds", type=int, help="other than the jobs'")
    parser.add_argument(
        "--at-a-time", type=int, default=2, metavar="N", help="trainings side by side (%(default)s)"
    )
    parser.add_argument("--figures", type=Path, metavar="DIR", help="draw the runs on MNIST, as SVG files")
    parser.add_argument(
        "--out", type=Path, help=f"runs and tables go here, and continue here (runs/{folder})"
    )
    options = parser.parse_args(given)
    options.out = options.out or Path("runs", f"{folder}-quick" if options.quick else folder)
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def main(given: list[str] | None = None) -> None:
    options = options_of(__doc__, "algorithms", given)
    for data in options.data:
        runs = run_all(data, options)
        made = table(HEADINGS[data], {name: ROWS[data](of) if of else ["lost"] for name, of in runs.items()})
        if data == "mnist":
            made += "\n" + table(COSTS, {name: cost_row(of[0]) for name, of in runs.items() if of})
        (options.out / f"{data}.md").write_text(made)
        print(
            f"{data}: {TITLES[data]}{', --quick: tiny data' if options.quick else ''}\n\n{made}", flush=True
        )
        if data == "mnist" and options.figures:
            from algorithm_figures import draw_all

            draw_all({name: of for name, of in runs.items() if of}, options.figures)


if __name__ == "__main__":
    main()
