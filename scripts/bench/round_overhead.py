"""What a round costs in mpifl beyond the same training in a bare loop of plain torch (`bare.py`).

    python scripts/bench/round_overhead.py --job all --also local.compile=true --also "a.b=1 NAME=2" --json
    result.json

J1: 10 silos of 600 MNIST images, 2NN, E = 1, B = 10, every silo in every round. J2: 4 silos, a perceptron of
11.0 million parameters, one step a round: what moving the model costs. J3: 100 silos, C = 0.1. Both sides
train on two processes with a thread each (mpifl's server is a third that waits), and take turns, so that
whatever else the machine does meets both. --also times mpifl once more with other settings, in the same
turns; --exact-vs-plain SETTING does so with the setting that makes sums plain float32. With --test 10000 and
--also "evaluate.every=1 evaluate.behind=true" mpifl scores each round, and a bare loop never does. With
--device cuda both sides train there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import bare
from bare import EXAMPLES, TASKS, Task
from common import advise, images, middle, save, seconds_of_rounds, train, write_job, write_silos

WARMUP = 3
EXACT_TARGET = 1.10
"""What sums of the same bits may cost on J2 beside plain ones."""
LIMIT = 120.0
"""Seconds that one run of either side may take beside its rounds, and as many again for every 100 of them."""


def mpifl_rounds(
    folder: Path,
    task: Task,
    rounds: int,
    run: Path,
    settings: Sequence[str],
    flags: Sequence[str] = (),
    workers: int = bare.WORKERS,
) -> list[float]:
    """Train with mpifl and return the seconds between the ends of one round and the next."""
    job, length = folder / "job.toml", {"steps": task.steps} if task.steps else {"epochs": 1}
    model = {"name": "mlp", "hidden": list(task.hidden)}
    fraction = task.drawn / task.silos
    write_job(
        job, folder / "shards", rounds + 1, model, fraction, lr=bare.LR, batch_size=bare.BATCH, **length
    )
    train(job, run, workers + 1, LIMIT * (1 + rounds / 100), settings=settings, flags=flags)
    return seconds_of_rounds(run, WARMUP)


def measure(
    name: str,
    rounds: int,
    repeats: int,
    also: Sequence[str],
    *,
    test: int = 0,
    workers: int = bare.WORKERS,
    device: str = "cpu",
) -> dict[str, Any]:
    """Run all sides in turn; return, for each run, the seconds of its rounds after the warm-up.

    `test` is how many images the server can score, `workers` how many ranks of mpifl train.
    """
    task = TASKS[name]
    x, y, data = images(task.silos * EXAMPLES)
    on = [f"device={device}"]
    settings = {"mpifl": on, **{f"mpifl {extra}": [*on, *extra.split()] for extra in also}}
    sides: dict[str, list[list[float]]] = {"mpifl": [], "bare": [], **{side: [] for side in settings}}
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        folder = Path(scratch)
        write_silos(folder / "shards", x, y, task.silos, (x[:test], y[:test]) if test else None)
        for nth in range(repeats):
            for number, side in enumerate(sides):
                if side == "bare":
                    sides[side].append(bare.seconds_of_rounds(x, y, task, WARMUP + rounds, device)[WARMUP:])
                else:
                    run = folder / f"run{nth}-{number}"
                    own = settings[side]
                    sides[side].append(mpifl_rounds(folder, task, WARMUP + rounds, run, own, workers=workers))
    return {"job": name, "data": data, "steps_of_worker": task.steps_of_worker, "seconds": sides}


def ratio_of(result: dict[str, Any], side: str, to: str = "bare") -> dict[str, float]:
    """Return a side's median round over another's:
    median and extremes over the repeats; and of the best rounds."""
    one, other = result["seconds"][side], result["seconds"][to]
    ratios = [median(ours) / median(theirs) for ours, theirs in zip(one, other, strict=True)]
    ratio, spread = middle(ratios)
    best = min(map(min, one)) / min(map(min, other))
    return {"ratio": ratio, "low": min(ratios), "high": max(ratios), "spread": spread, "ratio_of_best": best}


def show(result: dict[str, Any]) -> None:
    """Print the median and the best round of each side and their ratios to bare's,
    which go into the result, too."""
    name, seconds, steps = result["job"], result["seconds"], result["steps_of_worker"]
    result["ratios"] = {side: ratio_of(result, side) for side in seconds}
    runs, rounds = len(seconds["bare"]), len(seconds["bare"][0])
    print(f"{name} on {result['data']}: {TASKS[name].about}; {runs} runs of {rounds} rounds a side")
    width = max(map(len, seconds))
    print(
        f"{'':{width}}{'ms a round':>12}{'us a step':>11}{'best ms':>9}"
        f"{'ratio':>8}{'from - to':>16}{'of best':>9}"
    )
    for side, own in result["ratios"].items():
        typical, best = median(map(median, seconds[side])), min(map(min, seconds[side]))
        times = f"{1e3 * typical:12.1f}{1e6 * typical / steps:11.0f}{1e3 * best:9.1f}"
        extremes = f"{own['low']:.3f} - {own['high']:.3f}"
        print(f"{side:{width}}{times}{own['ratio']:8.3f}{extremes:>16}{own['ratio_of_best']:9.3f}")
    advise(max(own["spread"] for own in result["ratios"].values()))


def show_exactness(result: dict[str, Any], plain: str) -> None:
    """Print what sums of the same bits cost beside plain ones."""
    own = result["exact_vs_plain"] = ratio_of(result, "mpifl", f"mpifl {plain}")
    verdict = "met" if own["ratio"] <= EXACT_TARGET else "missed"
    found = f"{own['ratio']:.3f} ({own['low']:.3f} - {own['high']:.3f}; of best {own['ratio_of_best']:.3f})"
    print(
        f"{result['job']}: exact sums over plain ones ({plain}) {found}, target {EXACT_TARGET:.2f} {verdict}"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--job", choices=[*TASKS, "all"], default="J1", help="(%(default)s)")
    parser.add_argument(
        "--also", action="append", default=[], metavar="SETTINGS", help="KEY=VALUE ... of one more side"
    )
    parser.add_argument(
        "--test", type=int, default=0, help="images for --also evaluate.every=1 (%(default)s)"
    )
    parser.add_argument(
        "--workers", type=int, default=bare.WORKERS, help="ranks of mpifl that train (%(default)s)"
    )
    parser.add_argument("--device", default="cpu", help="of both sides: cpu or cuda (%(default)s)")
    parser.add_argument("--exact-vs-plain", metavar="SETTING", help="what makes sums plain: KEY=VALUE")
    parser.add_argument(
        "--rounds", type=int, default=30, help="rounds of a run after the warm-up (%(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one run of 3 rounds: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.repeats = 3, 1
    if min(options.rounds, options.repeats) < 1:
        parser.error("--rounds and --repeats must be at least 1")
    return options


def main() -> None:
    options = arguments()
    plain = options.exact_vs_plain
    also = [*options.also, *([plain] if plain else [])]
    results = []
    for name in TASKS if options.job == "all" else [options.job]:
        of = {"test": options.test, "workers": options.workers, "device": options.device}
        results.append(measure(name, options.rounds, options.repeats, also, **of))
        show(results[-1])
        if plain:
            show_exactness(results[-1], plain)
    save(options.json, {"jobs": results})


if __name__ == "__main__":
    main()
