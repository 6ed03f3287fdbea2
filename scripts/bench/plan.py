"""What `mpifl plan` says of jobs drawn at random, beside what they take: bytes, memory and seconds.

    python scripts/bench/plan.py --jobs 30 --seed 1 --json result.json

Each job is measured on its ranks (`mpifl doctor JOB --profile FILE`, three rounds), planned, and trained
with more rounds. Jobs are drawn over data, models, silos, ranks, algorithms, codecs and keys of training;
what mpifl refuses is drawn anew. Memory is the largest resident size of each process, read while it runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np
import tomli_w
from common import ENVIRONMENT, ROOT, SOURCES, metrics, save, start_ranks

LIMIT = 300.0
"""Seconds that a measurement or a training may take."""
SECONDS, MOST = 15.0, 400
"""About so long a job trains, within so many rounds."""
LOOKS, SEARCHES = 4, 15
"""Of so many slices one looks at memory; so many of these looks search for ranks."""
DATA: dict[str, tuple[str, tuple[int, int], tuple[dict[str, Any], ...]]] = {
    "mnist": (
        "mnist",
        (4000, 9000),
        (
            {"name": "logreg"},
            {"name": "2nn"},
            {"name": "mlp", "hidden": [1000, 1000]},
            {"name": "mlp", "hidden": [64, 64, 64]},
        ),
    ),
    "images": ("mnist", (600, 1500), ({"name": "cnn"},)),
    "text": ("tinyshakespeare", (200, 500), ({"name": "char-lstm", "hidden": 64},)),
    "table": ("adult", (4000, 20000), ({"name": "logreg"}, {"name": "mlp", "hidden": [64, 32]})),
}
"""A source, how many rows are taken, and the models that are trained on it."""
OPTIONS = {
    "mnist": ("--option", "scale=1/255"),
    "tinyshakespeare": ("--option", "targets=classes"),
}
ALGORITHMS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"algorithm": {"name": "fedprox", "mu": 0.1}},
    {"algorithm": {"name": "scaffold"}},
    {"algorithm": {"name": "fednova"}},
    {"algorithm": {"name": "feddyn"}},
    {"algorithm": {"name": "ditto"}},
    {"algorithm": {"name": "apfl"}},
    {"algorithm": {"name": "pfedme"}},
    {"algorithm": {"name": "fedsam"}},
    {"algorithm": {"name": "fedexp"}},
    {"algorithm": {"name": "finetune"}},
    {"algorithm": {"name": "moon"}},
    {"algorithm": {"name": "ifca", "clusters": 2}},
    {"algorithm": {"name": "fedbuff", "buffer": 2}, "clock": {"speeds": "uniform"}},
    {"server_optimizer": {"name": "adam"}},
    {"server_optimizer": {"name": "sgd", "momentum": 0.9}},
    {"aggregation": {"rule": "median"}},
    {"aggregation": {"rule": "krum", "byzantine": 1}},
    {"security": {"least": 1}},
    {"privacy": {"clip": 0.5, "noise": 1.0, "delta": 1e-5}, "evaluate": {"silos": False}},
)
CODECS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"upload": "float16"},
    {"upload": "qsgd", "bits": 4},
    {"upload": "topk", "share": 0.1},
    {"upload": "bfloat16", "download": "bfloat16"},
)
LOCAL: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"momentum": 0.9},
    {"optimizer": "adam"},
    {"optimizer": "adamw", "keep_optimizer_state": True},
    {"clip_norm": 1.0},
    {"accumulate_batches": 2},
)


def drawn(draw: Random, folder: Path) -> tuple[Path, int]:
    """Draw a federation and a job, and return the job's file and its ranks; again, where it is refused."""
    for _ in range(100):
        kind = draw.choice([*DATA])
        source, rows, models = DATA[kind]
        taken, silos = draw.randint(*rows), draw.randint(3, 12)
        cut = draw.choice([["iid"], ["dirichlet", "--alpha", "1"]] if kind != "text" else [["iid"]])
        shards = folder / f"shards-{kind}"
        local = {"lr": 0.01, "batch_size": draw.choice([10, 20, 50, 100]), "epochs": draw.choice([1, 2])}
        job: dict[str, Any] = {
            "name": "drawn",
            "shards": str(shards),
            "seed": draw.randrange(1000),
            "rounds": draw.randint(8, 20),
            "model": draw.choice(models),
            "local": {**local, **draw.choice(LOCAL)},
            "cohort": {"fraction": draw.choice([1.0, 1.0, 0.5, 0.3])},
            "checkpoint": {"every": draw.choice([1, 5, 100])},
            "evaluate": {"every": draw.choice([1, 5, 100])},
        }
        for name, table in draw.choice(ALGORITHMS).items():
            job[name] = {**job.get(name, {}), **table}
        if codec := draw.choice(CODECS):
            job["compression"] = codec
        if kind == "text":
            job["task"] = {"name": "language"}
        path, ranks = folder / "drawn.toml", draw.choice([2, 3, 3, 4])
        path.write_text(tomli_w.dumps(job))
        asked = ["--silos", str(silos), "--seed", "1", "--valid", "0.1", *OPTIONS.get(source, ())]
        shutil.rmtree(shards, ignore_errors=True)
        found = SOURCES[source](None, 0)
        np.savez(folder / "rows.npz", x=found.x[:taken], y=found.y[:taken])
        words = ["npz", "--data", str(folder / "rows.npz"), "--out", str(shards), "--scheme", *cut, *asked]
        made = mpifl("data_prep", "partition", *words)
        checked = made if made.returncode else mpifl("mpifl", "check", str(path))
        if not checked.returncode:
            return path, ranks
        print(f"drawn anew: {(checked.stderr or checked.stdout).strip().splitlines()[-1]}")
    raise SystemExit("error: a hundred jobs were refused")


def mpifl(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the tree that this file stands in."""
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT, timeout=LIMIT, check=False
    )


class Memory:
    """The most memory that each rank of a launcher's has had, looked at now and then while it runs."""

    def __init__(self) -> None:
        self.most: Counter[int] = Counter()
        self._ranks: dict[Path, int] = {}
        self._looks = 0

    def look(self) -> None:
        """Read the peak of each rank; to search for ranks costs, and is done in the first seconds only."""
        self._looks += 1
        if self._looks % LOOKS:
            return
        if self._looks <= SEARCHES * LOOKS:
            self._ranks |= {
                process: rank
                for process in Path("/proc").glob("[0-9]*")
                if (rank := rank_of(process)) is not None
            }
        for process, rank in self._ranks.items():
            self.most[rank] = max(self.most[rank], peak(process))


def rank_of(process: Path) -> int | None:
    """Return the rank of a process that trains; None for others."""
    try:
        if b"mpifl\0train" not in (process / "cmdline").read_bytes():
            return None
        told = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    names = (b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=")
    return next((int(one.partition(b"=")[2]) for one in told if one.startswith(names)), None)


def peak(process: Path) -> int:
    """Return the most bytes that a process has had; 0 when it is gone."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def compared(path: Path, ranks: int, folder: Path) -> dict[str, Any]:
    """Measure, plan and train a job; return ratios of what was found to what was planned."""
    profile, plan, run = folder / "drawn.profile", folder / "plan.json", folder / "run"
    for old in (profile, plan):
        old.unlink(missing_ok=True)
    shutil.rmtree(run, ignore_errors=True)
    log, memory = folder / "log", Memory()
    start_ranks(["-m", "mpifl", "doctor", str(path), "--profile", str(profile)], ranks, LIMIT, log)
    rounds: list[str] = []
    for _ in range(2):  # the first plan says how many rounds are more than a start
        told = mpifl("mpifl", "plan", str(path), "--profile", str(profile), "--json", str(plan), *rounds)
        if told.returncode:
            raise SystemExit(f"error: plan: {told.stderr}")
        usual = median(json.loads(plan.read_text())["forecast"]["round_seconds"])
        rounds = rounds or ["--set", f"rounds={max(8, min(round(SECONDS / usual), MOST))}"]
    began = time.monotonic()
    start_ranks(
        ["-m", "mpifl", "train", str(path), "--out", str(run), *rounds], ranks, LIMIT, log, memory.look
    )  # fmt: skip
    seconds = time.monotonic() - began
    return {**ratios(json.loads(plan.read_text()), metrics(run), memory.most), **of_time(plan, run, seconds)}


def ratios(plan: Mapping[str, Any], records: list[dict[str, Any]], most: Counter[int]) -> dict[str, Any]:
    """Return whether bytes are equal, and memory found of the server and of the worker with most."""
    keys = ("bytes_sent", "bytes_received", "bytes_of_silo_max")
    planned, found = ([[one[key] for key in keys] for one in rounds] for rounds in (plan["rounds"], records))
    if plan["exact"]:
        bytes_ = "equal" if planned == found else "NOT EQUAL"
    elif plan["unknown"]:
        sent, told = (sum(one[0] + one[1] for one in rounds) for rounds in (planned, found))
        bytes_ = f"partly not known, off by {abs(told / sent - 1):.1e}"
    else:
        bytes_ = (
            "at most"
            if all(a >= b for p, f in zip(planned, found, strict=False) for a, b in zip(p, f, strict=True))
            else "MORE"
        )
    forecast = plan["forecast"]
    workers = [peak for rank, peak in most.items() if rank] or [most[0]]
    return {
        "parameters": plan["parameters"],
        "silos": plan["silos"],
        "ranks": forecast["ranks"],
        "bytes": bytes_,
        "least": forecast["memory_at_least"],
        "server": most[0] / forecast["server_bytes"],
        "worker": max(workers) / forecast["worker_bytes"],
    }


def of_time(plan: Path, run: Path, seconds: float) -> dict[str, Any]:
    """Return the seconds found for each that was planned: of the rounds, and from the start to the end."""
    forecast, records = json.loads(plan.read_text())["forecast"], metrics(run)
    rounds = sum(one["seconds"] for one in records)
    return {
        "round": rounds / len(records),
        "planned": forecast["of_it"],
        "found": {
            "rounds": rounds,
            **{
                key: sum(one.get(f"seconds_{key[:-1]}", 0.0) for one in records)
                for key in ("evaluations", "checkpoints")
            },
        },
        "seconds": seconds,
        "rounds": rounds / forecast["of_it"]["rounds"],
        "whole": seconds / forecast["seconds"],
    }


def main() -> None:
    """Compare jobs, one after another, and print what came of each and of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="*", help="jobs of these numbers alone")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as name:
        for number in given.only or range(given.jobs):
            path, ranks = drawn(Random(f"{given.seed} {number}"), Path(name))
            job = path.read_text()
            one = compared(path, ranks, Path(name))
            found.append({**one, "job": job})
            figures = " ".join(f"{key} {one[key]:.3f}" for key in ("server", "worker", "rounds", "whole"))
            print(f"{number}: {one['bytes']}, {figures}; {one['round']:.3f} s a round", flush=True)
    for key in ("server", "worker", "rounds", "whole"):
        off = sorted(abs(one[key] - 1) for one in found)
        print(f"{key}: off by {median(off):.1%} in the median, {off[-1]:.1%} at most")
    save(given.json, {"jobs": found})


if __name__ == "__main__":
    main()
