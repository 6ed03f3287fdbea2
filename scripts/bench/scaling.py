"""A round's seconds against the number of silos, of ranks, and the size of the model.

    python scripts/bench/scaling.py --json scaling.json && python scripts/bench/model.py scaling.json

silos: 10 to 10,000 of them, 10 drawn a round: a round must not cost more because others wait to be drawn.
strong: the same 20 silos on more ranks. weak: 10 silos for each worker. crowded: the same 64 silos on many
more ranks than cores. size, cohort: what lets `model.py` tell the terms of a round's cost apart. unseen: what
it is held against. The points of a part take turns. One rank is server and worker at once; more ranks that
train than there are cores share them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import advise, images, metrics, middle, save, seconds_of_rounds, train, write_job, write_silos

EXAMPLES, WARMUP = 10, 3
"""Training images of a silo, and rounds before what is measured."""
LIMIT = 300.0
UNSEEN = "unseen"
"""The part that `model.py` fits nothing to."""
FLAT_TARGET = 1.10
"""What a round may cost with the most silos beside one with the fewest."""


@dataclass(frozen=True)
class Point:
    """One training: ranks, silos in all and in a round, a silo's steps,
    the width of the model's two hidden layers."""

    ranks: int = 3
    silos: int = 10
    drawn: int = 10
    steps: int = 10
    width: int = 200

    @property
    def workers(self) -> int:
        return max(self.ranks - 1, 1)

    @property
    def parameters(self) -> int:
        return 785 * self.width + (self.width + 1) * self.width + 10 * (self.width + 1)


def parts_of(silos: Sequence[int], ranks: Sequence[int], crowds: Sequence[int]) -> dict[str, list[Point]]:
    """Return the parts and their points; in each part the first is what the others are set against."""
    return {
        "silos": [Point(silos=k) for k in silos],
        "strong": [Point(ranks=r, silos=20, drawn=20) for r in ranks],
        "weak": [Point(ranks=r, silos=10 * max(r - 1, 1), drawn=10 * max(r - 1, 1)) for r in ranks],
        "crowded": [Point(ranks=r, silos=64, drawn=64) for r in crowds],
        "size": [
            Point(silos=k, drawn=k, steps=s, width=w)
            for w in (200, 900, 2943)
            for s, k in ((1, 2), (4, 2), (1, 6))
        ],
        "cohort": [Point(ranks=r, silos=100, drawn=k, steps=1) for r in (2, 3) for k in (4, 20, 100)],
        UNSEEN: [
            Point(silos=12, drawn=12, steps=6, width=600),
            Point(silos=40, drawn=40, steps=3, width=300),
        ],
    }


def timed(point: Point, folder: Path, rounds: int, run: Path) -> dict[str, list[float]]:
    """Train a point once; return the seconds of its rounds, of the training in them, and of the rest, after
    the warm-up."""
    shards = folder / f"shards{point.silos}"
    if not shards.exists():
        x, y, _ = images(EXAMPLES * point.silos)
        many = EXAMPLES * point.silos  # more than there are: the same ones again
        write_silos(shards, np.resize(x, (many, *x.shape[1:])), np.resize(y, many), point.silos)
    model = {"name": "mlp", "hidden": [point.width, point.width]}
    write_job(
        folder / "job.toml", shards, WARMUP + rounds + 1, model, point.drawn / point.silos, steps=point.steps
    )
    train(folder / "job.toml", run, point.ranks, LIMIT)
    training = [record["seconds_training"] for record in metrics(run)][WARMUP + 1 :]
    seconds = seconds_of_rounds(run, WARMUP)
    rest = [whole - part for whole, part in zip(seconds, training, strict=True)]
    return {"seconds": seconds, "training": training, "rest": rest}


def measure(points: Sequence[Point], folder: Path, rounds: int, repeats: int) -> list[dict[str, Any]]:
    """Train all points in turn, again and again; return each with the medians of its runs."""
    taken: list[list[dict[str, list[float]]]] = [[] for _ in points]
    for _ in range(repeats):
        for point, runs in zip(points, taken, strict=True):
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                runs.append(timed(point, folder, rounds, Path(scratch) / "run"))
    return [
        {**asdict(point), "workers": point.workers, "megabytes": 4e-6 * point.parameters}
        | {key: [median(run[key]) for run in runs] for key in ("seconds", "training")}
        | {"best": min(min(run["seconds"]) for run in runs)}
        | {"least": {key: min(min(run[key]) for run in runs) for key in ("training", "rest")}}
        for point, runs in zip(points, taken, strict=True)
    ]


def show(part: str, rows: list[dict[str, Any]]) -> None:
    """Print a part's points, each beside its first; the ratios go into the rows, too."""
    shape = f"{'ranks':>6}{'silos':>7}{'drawn':>7}{'steps':>7}{'MB':>7}"
    print(f"{part:8}{shape}{'ms a round':>12}{'best':>9}{'ratio':>8}{'of best':>9}")
    spreads = []
    for row in rows:
        ratios = [one / first for one, first in zip(row["seconds"], rows[0]["seconds"], strict=True)]
        row["ratio"], spread = middle(ratios)
        row["ratio_of_best"] = row["best"] / rows[0]["best"]
        spreads.append(spread)
        shape = f"{row['ranks']:6}{row['silos']:7}{row['drawn']:7}{row['steps']:7}{row['megabytes']:7.1f}"
        times = f"{1e3 * median(row['seconds']):12.2f}{1e3 * row['best']:9.2f}"
        print(f"{'':8}{shape}{times}{row['ratio']:8.2f}{row['ratio_of_best']:9.2f}", flush=True)
    advise(max(spreads))
    if part == "silos":
        verdict = "met" if rows[-1]["ratio"] <= FLAT_TARGET else "missed"
        print(
            f"{rows[-1]['silos']} silos over {rows[0]['silos']}: "
            f"{rows[-1]['ratio']:.2f}; {FLAT_TARGET} {verdict}"
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = list(parts_of([], [], []))
    parser.add_argument("--parts", nargs="+", choices=known, default=known, help="(%(default)s)")
    parser.add_argument("--silos", type=int, nargs="+", default=[10, 100, 1000, 10_000], help="(%(default)s)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="(%(default)s)")
    parser.add_argument("--crowds", type=int, nargs="+", default=[3, 9, 17, 33, 64], help="(%(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=30, help="rounds of a run after the warm-up (%(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each point (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="10 and 20 silos, once: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.quick:
        options.parts, options.silos, options.rounds, options.repeats = ["silos"], [10, 20], 3, 1
    if min(options.rounds, options.repeats, *options.ranks, *options.crowds) < 1 or min(options.silos) < 10:
        parser.error("--rounds, --repeats and --ranks must be at least 1, --silos at least 10")
    return options


def main() -> None:
    options = arguments()
    print(f"{os.cpu_count()} cores; medians of {options.repeats} runs of {options.rounds} rounds; B = 10")
    parts = {}
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        for part, points in parts_of(options.silos, options.ranks, options.crowds).items():
            if part in options.parts:
                parts[part] = measure(points, Path(scratch), options.rounds, options.repeats)
                show(part, parts[part])
    save(options.json, {"cores": os.cpu_count(), "parts": parts})


if __name__ == "__main__":
    main()
