"""Try the values that each job of jobs/algorithms says were searched, and print what each combination
reaches.

A job's comments `# searched: KEY = [...]` are the values; all combinations are tried, for a part of the job's
rounds. They are judged by the silos' mean accuracy, or what a comment `# judged by: FIGURE` names, over the
later half of the evaluations, on a fifth of each silo's training rows that is held out for it: no test row is
looked at. What diverges counts 0.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
from pathlib import Path
from statistics import mean

import numpy as np
from algorithm_tables import percent, records
from compare_algorithms import DATA, QUICK_ROUNDS, jobs_of, options_of, train_all
from write_shard import write_shard

from mpifl.common.rng import numpy_stream
from mpifl.data.shards.shards import FederationSpec, ShardEntry, open_shard, read_federation

SEARCHED = 0.28
"""The share of a job's rounds that a trial goes."""
SEEDS = 2
HELD_OUT = 0.2


def hold_out(folder: Path) -> Path:
    """Return a shard folder with the same silos,
    whose test rows are a fifth of the training rows of `folder`."""
    out = folder.with_name(f"{folder.name}-search")
    if out.exists():
        return out
    out.mkdir()
    spec = read_federation(folder)
    silos = [_hold_out(folder, entry, spec, out) for entry in spec.silos]
    if spec.public:
        shutil.copy(folder / spec.public.file, out)
    spec.model_copy(update={"silos": silos, "test": None}).write(out)
    return out


def _hold_out(folder: Path, entry: ShardEntry, spec: FederationSpec, out: Path) -> ShardEntry:
    assert entry.silo is not None
    rows = open_shard(folder, entry, spec)["train"]
    order = numpy_stream(0, "search", entry.silo).permutation(len(rows.y))
    held, kept = np.split(order, [int(HELD_OUT * len(order))])
    arrays = {"train": (rows.x[kept], rows.y[kept]), "test": (rows.x[held], rows.y[held])}
    about = {"silo": entry.silo, "name": entry.name, "features": spec.features, "classes": spec.classes}
    return write_shard(out / entry.file, arrays, **about)


def grid(job: Path) -> list[tuple[str, ...]]:
    """Return the combinations of what a job's comments say was searched, as overrides."""
    keys = re.findall(r"^# searched: (\S+) = \[(.*)\](?:;.*)?$", job.read_text(), re.MULTILINE)
    values = [[f"{key}={json.dumps(value)}" for value in json.loads(f"[{listed}]")] for key, listed in keys]
    return list(itertools.product(*values))


def search(data: str, jobs: list[Path], options: argparse.Namespace) -> str:
    """Try the values of each job; return a line for every combination, the best of a job first."""
    out, quick = options.out, options.quick
    seeds = (options.seeds or DATA[data].seeds)[:SEEDS]
    folders = [hold_out(DATA[data].partition(seed, quick)) for seed in seeds]
    tried = {
        (job, values): [out / f"{job.stem}-{nth}-{folder.name}" for folder in folders]
        for job in jobs
        for nth, values in enumerate(grid(job))
    }
    tasks = {
        run: (job, run, (*values, f"shards={folder}", *_shorter(job, quick)))
        for (job, values), runs in tried.items()
        for run, folder in zip(runs, folders, strict=True)
    }
    lost = dict(zip(tasks, train_all(list(tasks.values()), options.at_a_time), strict=True))
    figures = {job: figure_of(job) for job in jobs}
    scored = {
        (job, values): mean(0.0 if lost[run] else _score(run, figures[job]) for run in runs)
        for (job, values), runs in tried.items()
    }
    ordered = sorted(scored, key=lambda key: (jobs.index(key[0]), -scored[key]))
    return "".join(
        f"{job.stem:18} {percent(scored[job, values])}  {' '.join(values)}\n" for job, values in ordered
    )


def _shorter(job: Path, quick: bool) -> tuple[str, ...]:
    (found,) = re.findall(r"^rounds *= (\d+)$", job.read_text(), re.MULTILINE)
    rounds = QUICK_ROUNDS if quick else int(SEARCHED * int(found))
    return f"rounds={rounds}", f"evaluate.every={max(rounds // 7, 1)}", "tracking.console=false"


def figure_of(job: Path) -> str:
    """Return the figure of `metrics.jsonl` by which a job's comments say that its trials are judged."""
    return (re.findall(r"^# judged by: (\w+)$", job.read_text(), re.MULTILINE) or ["silo_accuracy_mean"])[0]


def _score(run: Path, figure: str) -> float:
    found = [r[figure] for r in records(run) if figure in r]
    return mean(found[len(found) // 2 :])


def main() -> None:
    options = options_of(__doc__, "search")
    for data in options.data:
        table = search(data, jobs_of(data, options.only), options)
        (options.out / f"{data}.txt").write_text(table)
        print(table, flush=True)


if __name__ == "__main__":
    main()
