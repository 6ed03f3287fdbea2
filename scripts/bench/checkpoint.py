"""How long a checkpoint holds a training up, beside a plain write of the same bytes to the same file system.

    python scripts/bench/checkpoint.py --job all --json result.json

8 silos, a perceptron of 11.0 million parameters, a step each a round, on 3 ranks, 2 of which train. `dear`: SCAFFOLD
with Adam at the server, so that the server keeps four vectors and each silo one, 528 MB. `plain`: FedAvg, the model
alone, 44 MB. A checkpoint follows every other round. What it holds up is the time from the end of its round to the
beginning of the next, all that the workers wait for included. Runs with `background` false, with true, and without
checkpoints take turns with plain writes: one process opens a file, writes from memory, flushes it to the disk.

Beside that stands what a checkpoint costs in all: two rounds and one, less two rounds of a run without any.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from common import NEVER, advise, images, metrics, middle, save, train, write_job, write_silos

SILOS, EXAMPLES, RANKS, EVERY = 8, 100, 3, 2
MODEL: dict[str, Any] = {"name": "mlp", "hidden": [2943, 2943]}
SMALL: dict[str, Any] = {"name": "mlp", "hidden": [16]}
JOBS = {
    "dear": ["algorithm.name=scaffold", "server_optimizer.name=adam", "server_optimizer.lr=0.001"],
    "plain": ["algorithm.name=fedavg"],
}
SIDES = {
    "foreground": [f"checkpoint.every={EVERY}"],
    "background": [f"checkpoint.every={EVERY}", "checkpoint.background=true"],
    "none": [f"checkpoint.every={NEVER}"],
}
WARMUP = 1
"""Checkpoints that are left out: the first makes folders and finds no room that was used before."""
TARGET = 2.0
LIMIT = 120.0
"""Seconds that a run may take."""


def held_up(run: Path) -> list[float]:
    """Return the seconds from the end of each round to the beginning of the next, for the rounds with a checkpoint."""
    pairs = list(itertools.pairwise(metrics(run)))[EVERY - 1 :: EVERY]
    return [after["time"] - after["seconds"] - before["time"] for before, after in pairs][WARMUP:]


def of_pairs(run: Path) -> list[float]:
    """Return the seconds of each pair of rounds from one checkpoint's round to the next one's."""
    ends = [record["time"] for record in metrics(run)][EVERY - 1 :: EVERY]
    return [after - before for before, after in itertools.pairwise(ends)][WARMUP:]


def plain_writes(content: bytes, folder: Path, times: int) -> list[float]:
    """Write these bytes to a file that was not there, so many times; return the seconds of each."""
    seconds, path = [], folder / "plain"
    for _ in range(times):
        began = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            view = memoryview(content)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
        seconds.append(time.perf_counter() - began)
        path.unlink()
    return seconds


def measure(job: str, checkpoints: int, repeats: int, sides: list[str], model: dict[str, Any]) -> dict[str, Any]:
    """Run all sides in turn, the order reversed each time, with plain writes after each."""
    x, y, data = images(SILOS * EXAMPLES)
    seconds: dict[str, dict[str, list[list[float]]]] = {side: {"held_up": [], "pair": []} for side in sides}
    writes: list[list[float]] = []
    size = 0
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-", dir=Path.cwd()) as scratch:
        folder = Path(scratch)
        write_silos(folder / "shards", x, y, SILOS)
        write_job(folder / "job.toml", folder / "shards", EVERY * (WARMUP + checkpoints) + 1, model, steps=1)
        for nth in range(repeats):
            own = []
            for side in sides if nth % 2 else reversed(sides):
                run = folder / f"{side}{nth}"
                train(folder / "job.toml", run, RANKS, LIMIT, settings=[*JOBS[job], *SIDES[side]])
                seconds[side]["held_up"].append(held_up(run))
                seconds[side]["pair"].append(of_pairs(run))
                last = max((run / "checkpoints").iterdir())
                content = b"".join(path.read_bytes() for path in last.glob("*.safetensors"))
                size = len(content)
                own += plain_writes(content, folder, checkpoints)
            writes.append(own)
    return {"job": job, "data": data, "bytes": size, "writes": writes, "seconds": seconds}


def judge(result: dict[str, Any]) -> None:
    """Put the ratios to plain writes into the result, and print them."""
    seconds, plain = result["seconds"], [median(own) for own in result["writes"]]
    result["ratios"] = {}
    typical = f"{result['bytes'] / 1e6:.0f} MB, plain write {1e3 * median(plain):.0f} ms"
    print(f"{result['job']} on {result['data']}: {typical}; {len(plain)} runs")
    print(f"{'':12}{'held up ms':>12}{'/ plain':>9}{'from - to':>16}{'in all ms':>12}{'/ plain':>9}")
    for side in (side for side in seconds if side != "none"):
        ratios = [median(own) / write for own, write in zip(seconds[side]["held_up"], plain, strict=True)]
        ratio, spread = middle(ratios)
        result["ratios"][side] = {"ratio": ratio, "low": min(ratios), "high": max(ratios), "spread": spread}
        typical = median(map(median, seconds[side]["held_up"]))
        line = f"{side:12}{1e3 * typical:12.0f}{ratio:9.2f}{f'{min(ratios):.2f} - {max(ratios):.2f}':>16}"
        if "none" in seconds:
            pairs = zip(seconds[side]["pair"], seconds["none"]["pair"], strict=True)
            more = [median(own) - median(without) for own, without in pairs]
            cost = median(extra / write for extra, write in zip(more, plain, strict=True))
            result["ratios"][side]["in_all"] = cost
            line += f"{1e3 * median(more):12.0f}{cost:9.2f}"
        print(line)
    found = result["ratios"].get("foreground", {}).get("ratio", 0.0)
    print(f"target {TARGET:.1f} {'met' if found <= TARGET else 'missed'}")
    advise(max(own["spread"] for own in result["ratios"].values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", choices=[*JOBS, "all"], default="dear", help="(%(default)s)")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="(all)")
    parser.add_argument("--checkpoints", type=int, default=4, help="of a run after the warm-up (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one run of a small model: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.quick:
        options.checkpoints, options.repeats = 2, 1
    if min(options.checkpoints, options.repeats) < 1:
        parser.error("--checkpoints and --repeats must be at least 1")
    model = SMALL if options.quick else MODEL
    results = []
    for job in JOBS if options.job == "all" else [options.job]:
        results.append(measure(job, options.checkpoints, options.repeats, options.sides, model))
        judge(results[-1])
    save(options.json, {"jobs": results})


if __name__ == "__main__":
    main()
