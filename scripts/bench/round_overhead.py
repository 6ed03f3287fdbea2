"""What a round costs in mpifl beyond the same training in a bare loop.

J1: 10 silos of 600 MNIST images, 2NN, E = 1, B = 10, every silo in every round, on 2 workers that train while the
server waits. Both sides run in turn, so that whatever else the machine does meets both.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import bare
from common import images, metrics, middle, save, train, write_job, write_silos

SILOS, EXAMPLES, WARMUP = 10, 600, 3
STEPS = SILOS * EXAMPLES // (bare.BATCH * bare.WORKERS)
"""Training steps of a worker in a round."""
LIMIT = 120.0
"""Seconds that one run of either side may take beside its rounds, and as many again for every 100 of them."""


def mpifl_rounds(folder: Path, rounds: int, nth: int) -> list[float]:
    """Train J1 with mpifl and return the seconds between the ends of one round and the next."""
    job, run = folder / "job.toml", folder / f"run{nth}"
    write_job(job, folder / "shards", rounds + 1, {"name": "2nn"}, lr=bare.LR, batch_size=bare.BATCH)
    train(job, run, bare.WORKERS + 1, LIMIT * (1 + rounds / 100))
    times = [record["time"] for record in metrics(run)]
    return [after - before for before, after in itertools.pairwise(times)]


def measure(rounds: int, repeats: int) -> dict[str, Any]:
    """Run both sides in turn; return, for each run, the seconds of its rounds after the warm-up."""
    x, y, data = images(SILOS * EXAMPLES)
    sides: dict[str, list[list[float]]] = {"mpifl": [], "bare": []}
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        folder = Path(scratch)
        write_silos(folder / "shards", x, y, SILOS)
        for nth in range(repeats):
            sides["mpifl"].append(mpifl_rounds(folder, WARMUP + rounds, nth)[WARMUP:])
            sides["bare"].append(bare.seconds_of_rounds(x, y, SILOS, WARMUP + rounds)[WARMUP:])
    return {"job": "J1", "data": data, "seconds": sides}


def show(result: dict[str, Any]) -> None:
    """Print the median round of each side and their ratio, and that of the best rounds, which noise hardly touches."""
    seconds = result["seconds"]
    medians = {side: [median(run) for run in runs] for side, runs in seconds.items()}
    best = {side: min(map(min, runs)) for side, runs in seconds.items()}
    ratios = [ours / theirs for ours, theirs in zip(medians["mpifl"], medians["bare"], strict=True)]
    ratio, spread = middle(ratios)
    result |= {"medians": medians, "best": best, "ratio": ratio, "ratio_spread": spread}
    result["ratio_of_best"] = best["mpifl"] / best["bare"]
    rounds = len(seconds["bare"][0])
    print(f"J1 on {result['data']}: 10 silos x 600, 2NN, E = 1, B = 10, 2 workers; {rounds} rounds a run")
    print(f"{'':6}{'ms a round':>12}{'us a step':>12}{'spread':>9}{'best ms':>10}{'best us':>10}")
    for side, runs in medians.items():
        typical, own = middle(runs)
        columns = f"{1e3 * typical:12.1f}{1e6 * typical / STEPS:12.1f}{own:9.0%}"
        print(f"{side:6}{columns}{1e3 * best[side]:10.1f}{1e6 * best[side] / STEPS:10.1f}")
    print(f"ratio {ratio:.3f}, from {min(ratios):.3f} to {max(ratios):.3f} over {len(ratios)} repeats; ", end="")
    print(f"of the best rounds {result['ratio_of_best']:.3f}")
    if spread > 0.15:
        print(f"noise: the ratios spread by {spread:.0%}, above 15 %; repeat on a quiet machine")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="rounds of a run after the warm-up (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if min(options.rounds, options.repeats) < 1:
        parser.error("--rounds and --repeats must be at least 1")
    result = measure(options.rounds, options.repeats)
    show(result)
    save(options.json, result)


if __name__ == "__main__":
    main()
