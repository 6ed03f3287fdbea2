"""Rounds, MB and virtual seconds to a target on silos at speeds from 1 to 10, with and without waiting.

What docs/explanation/algorithms.md shows:
    python scripts/asynchrony.py --seeds 1 2 3 4 5
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import mpifl  # noqa: E402
from mpifl.report.runs import read_run  # noqa: E402

SILOS, BATCH = 10, 16
ALIKE: dict[str, Any] = {"clock": {}, "cohort": {"weights": "uniform"}}
WAYS: dict[str, dict[str, Any]] = {
    "FedAvg": {"rounds": 300, "algorithm": {"name": "fedavg"}, "clock": {}},
    "FedAvg, deadline of 4 s": {"rounds": 300, "algorithm": {"name": "fedavg"}, "clock": {"deadline": 4.0}},
    "FedAsync": {"rounds": 3000, "algorithm": {"name": "fedasync"}, **ALIKE},
    "FedBuff, 3 updates": {"rounds": 1000, "algorithm": {"name": "fedbuff", "buffer": 3}, **ALIKE},
    "FedBuff, 10 updates": {"rounds": 300, "algorithm": {"name": "fedbuff", "buffer": 10}, **ALIKE},
    "FedCompass, 4 to 20 steps": {
        "rounds": 2000,
        "algorithm": {"name": "fedcompass", "min_local_steps": 4, "max_local_steps": 20},
        **ALIKE,
    },
}
"""The jobs, each with more rounds than it should need."""


def cut(seed: int, out: Path) -> None:
    """Cut the silos of a seed, unless they have been."""
    if not out.exists():
        words = ["partition", "digits", "--silos", str(SILOS), "--scheme", "dirichlet", "--alpha", "0.3"]
        words += ["--seed", str(seed), "--out", str(out)]
        subprocess.run(
            [sys.executable, "-m", "data_prep", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )


def spent(way: str, seed: int, target: float, out: Path) -> tuple[float, float, float] | None:
    """Train until the target; return the rounds, MB and virtual seconds to it, or None if it was missed."""
    shards, run = out / f"digits-seed{seed}", out / f"{way}-seed{seed}"
    cut(seed, shards)
    job = {
        "name": "asynchrony",
        "shards": str(shards),
        "seed": seed,
        "device": "cpu",
        "model": {"name": "mlp", "hidden": [64]},
        "local": {"lr": 0.1, "batch_size": BATCH},
        "evaluate": {"every": 1, "target": target, "stop_at_target": True},
        "checkpoint": {"every": 1000},
        "tracking": {"console": False},
        **WAYS[way],
    }
    mpifl.train(job, out=run, resume=run.exists())
    found = read_run(run).figures(target)
    rounds, carried = found["rounds_to_target"], found["bytes_to_target"]
    seconds = found["virtual_seconds_to_target"]
    if rounds is None or carried is None or seconds is None:
        return None
    return rounds, carried / 1e6, seconds


def row(way: str, seeds: list[int], target: float, out: Path) -> str:
    """Return the means over the seeds, with the sample standard deviations."""
    each = [costs for seed in seeds if (costs := spent(way, seed, target, out)) is not None]
    if len(each) < len(seeds):
        return f"| {way} | {len(each)} of {len(seeds)} | – | – |"
    spreads = [
        f"{mean(one):.1f}" + (f" ± {stdev(one):.1f}" if one[1:] else "") for one in zip(*each, strict=True)
    ]
    return f"| {way} | {' | '.join(spreads)} |"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--target", type=float, default=0.9)
    parser.add_argument("--out", type=Path, default=Path("runs/asynchrony"))
    options = parser.parse_args(arguments)
    print(
        f"| algorithm | rounds to {options.target:.0%} | MB | virtual seconds |",
        "| --- | ---: | ---: | ---: |",
        sep="\n",
    )
    for way in WAYS:
        print(row(way, options.seeds, options.target, options.out.absolute()), flush=True)


if __name__ == "__main__":
    main()
