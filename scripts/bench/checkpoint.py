"""How long a checkpoint holds a training up, beside a plain write of the same bytes to the same file system.

    python scripts/bench/checkpoint.py --job all --json result.json

8 silos, a perceptron of 11.0 million parameters, a step each a round, on 3 ranks, 2 of which train. `dear`:
SCAFFOLD with Adam at the server, so that the server keeps four vectors and each silo one, 528 MB. `plain`:
FedAvg, the model alone, 44 MB. A checkpoint follows every other round. What it holds up is the time from the
end of its round to the beginning of the next, all that the workers wait for included. In the rounds between,
rank 0 writes as many bytes plainly: from memory to one file, flushed to the disk. Plain files stay and go as
checkpoints do.

Runs with `background = true` have no plain writes, which would meet the checkpoint that is being written;
they take turns with the others, and so do runs without checkpoints. Beside what is held up stands what a
checkpoint costs in all, training that it slows down included: two rounds and a checkpoint, less two rounds of
a run without any.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from common import NEVER, ROOT, advise, images, metrics, middle, save, train, write_job, write_silos
from plainly import EVERY

SILOS, EXAMPLES, RANKS = 8, 100, 3
MODEL: dict[str, Any] = {"name": "mlp", "hidden": [2943, 2943]}
SMALL: dict[str, Any] = {"name": "mlp", "hidden": [16]}
JOBS = {
    "dear": ["algorithm.name=plainly:PlainScaffold", "server_optimizer.name=adam", "VECTORS=1"],
    "plain": ["algorithm.name=plainly:PlainFedAvg", "VECTORS=0"],
}
SIDES = {
    "foreground": [f"checkpoint.every={EVERY}"],
    "background": [f"checkpoint.every={EVERY}", "checkpoint.background=true"],
    "none": [f"checkpoint.every={NEVER}"],
}
WARMUP = 1
"""Checkpoints, and pairs of rounds, that are left out."""
TARGET = 2.0
LIMIT = 120.0
"""Seconds that a run may take."""


def read(run: Path) -> dict[str, list[float]]:
    """Return of a run's pairs of rounds, each begun by a checkpoint:
    what that held up, all seconds, plain writes'."""
    rounds = metrics(run)[EVERY * WARMUP - 1 :]
    held_up = [
        after["time"] - after["seconds"] - before["time"] for before, after in itertools.pairwise(rounds)
    ]
    ends = [record["time"] for record in rounds]
    plain = [record["plain_seconds"] for record in rounds[1:] if "plain_seconds" in record]
    pairs = [after - before for before, after in zip(ends[::EVERY], ends[EVERY::EVERY], strict=False)]
    size = max(record.get("plain_bytes", 0) for record in rounds)
    return {"held_up": held_up[::EVERY], "pair": pairs, "plain": plain, "bytes": [size]}


def measure(job: str, checkpoints: int, repeats: int, model: dict[str, Any]) -> dict[str, Any]:
    """Run all sides in turn, the order reversed each time."""
    x, y, data = images(SILOS * EXAMPLES)
    runs: dict[str, list[dict[str, list[float]]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-", dir=Path.cwd()) as scratch:
        folder = Path(scratch)
        write_silos(folder / "shards", x, y, SILOS)
        write_job(folder / "job.toml", folder / "shards", EVERY * (WARMUP + checkpoints) + 1, model, steps=1)
        for nth in range(repeats):
            for side in SIDES if nth % 2 else reversed(SIDES):
                run = folder / f"{side}{nth}"
                settings = [*JOBS[job], *SIDES[side], f"PYTHONPATH={ROOT}:{ROOT / 'scripts' / 'bench'}"]
                settings += [f"PLAIN={folder / 'plain'}"] if side == "foreground" else []
                train(folder / "job.toml", run, RANKS, LIMIT, settings=settings)
                runs[side].append(read(run))
    return {"job": job, "data": data, "runs": runs}


def judge(result: dict[str, Any]) -> None:
    """Put the ratios to plain writes into the result, and print them."""
    runs = result["runs"]
    plain, without = (
        [median(run[what]) for run in runs[side]]
        for side, what in (("foreground", "plain"), ("none", "pair"))
    )
    size = runs["foreground"][0]["bytes"][0] / 1e6
    print(
        f"{result['job']} on {result['data']}: {size:.0f} MB, plain write {1e3 * median(plain):.0f} ms; ",
        end="",
    )
    print(f"{len(plain)} runs of {len(runs['foreground'][0]['plain'])} checkpoints")
    print(f"{'':12}{'held up ms':>12}{'/ plain':>9}{'from - to':>16}{'in all ms':>12}{'/ plain':>9}")
    result["ratios"] = {}
    for side in ("foreground", "background"):
        held_up = [median(run["held_up"]) for run in runs[side]]
        ratios = [own / write for own, write in zip(held_up, plain, strict=True)]
        written = [median(run["plain"] or [0.0]) for run in runs[side]]
        pairs = zip(runs[side], written, without, strict=True)
        more = [median(run["pair"]) - write - pair for run, write, pair in pairs]
        cost = median(extra / write for extra, write in zip(more, plain, strict=True))
        ratio, spread = middle(ratios)
        result["ratios"][side] = {"ratio": ratio, "spread": spread, "in_all": cost}
        extremes = f"{min(ratios):.2f} - {max(ratios):.2f}"
        print(f"{side:12}{1e3 * median(held_up):12.0f}{ratio:9.2f}{extremes:>16}", end="")
        print(f"{1e3 * median(more):12.0f}{cost:9.2f}")
    print(
        f"target {TARGET:.1f} {'met' if result['ratios']['foreground']['ratio'] <= TARGET else 'missed'}",
        flush=True,
    )
    advise(max(own["spread"] for own in result["ratios"].values()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--job", choices=[*JOBS, "all"], default="dear", help="(%(default)s)")
    parser.add_argument("--checkpoints", type=int, default=4, help="of a run after the warm-up (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one run of a small model: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.quick:
        options.checkpoints, options.repeats = 2, 1
    if min(options.checkpoints, options.repeats) < 1:
        parser.error("--checkpoints and --repeats must be at least 1")
    results = []
    for job in JOBS if options.job == "all" else [options.job]:
        results.append(measure(job, options.checkpoints, options.repeats, SMALL if options.quick else MODEL))
        judge(results[-1])
    save(options.json, {"jobs": results})


if __name__ == "__main__":
    main()
