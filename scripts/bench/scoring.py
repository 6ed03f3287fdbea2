"""What scoring the server's test set takes at the server and at the workers, in turns.

    python scripts/bench/scoring.py --json result.json

McMahan's CNN, all ranks on this machine. At the server batches are scored at once on the cores of the ranks
that wait, so that both sides have the same cores. The first evaluation at the workers, which sends the test
set, is counted by itself.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import tomli_w
from common import NEVER, advise, images, middle, save, train, write_silos

SIDES = ("server", "workers")
TRAINED = 60
"""Examples that each silo trains on: what is looked at is what comes behind that."""
LIMIT = 600.0


def write(folder: Path, examples: int, rounds: int, size: int) -> tuple[Path, str]:
    """Write shards and a job; return the job, and what the examples are."""
    x, y, data = images(examples + 4 * TRAINED)
    shards, job = folder / "shards", folder / "job.toml"
    write_silos(shards, x[examples:], y[examples:], 4, (x[:examples], y[:examples]))
    tables: dict[str, Any] = {
        "model": {"name": "cnn"},
        "local": {"lr": 0.05, "batch_size": 10},
        "evaluate": {"batch_size": size, "silos": False},
        "checkpoint": {"every": NEVER},
        "device": "cpu",
        "threads": 1,
    }
    job.write_text(tomli_w.dumps({"name": "scoring", "shards": str(shards), "rounds": rounds, **tables}))
    return job, data


def measure(examples: int, ranks: int, repeats: int, rounds: int, size: int) -> dict[str, Any]:
    """Return the seconds of the evaluations of each side, repeat by repeat, and the last loss of each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job, data = write(folder, examples, rounds, size)
        found: dict[str, Any] = {"data": data, "examples": examples, "ranks": ranks, "losses": []}
        taken: dict[str, list[list[float]]] = {side: [] for side in SIDES}
        for nth in range(repeats):
            for side in reversed(SIDES) if nth % 2 else SIDES:
                run = folder / f"{side}-{nth}"
                train(job, run, ranks, LIMIT, settings=[f"evaluate.where={side}"])
                lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
                taken[side].append([line["seconds_evaluation"] for line in lines])
                found["losses"].append(lines[-1]["test_loss"])
        return found | {"seconds": taken}


def judge(result: dict[str, Any]) -> None:
    """Put the ratios to the server into the result, and print them."""
    best = {side: [min(one[1:]) for one in runs] for side, runs in result["seconds"].items()}
    first = {side: [one[0] for one in runs] for side, runs in result["seconds"].items()}
    ratios = [ours / theirs for ours, theirs in zip(best["workers"], best["server"], strict=True)]
    result["ratio"], result["spread"] = middle(ratios)
    result["same_bits"] = len(set(result["losses"])) == 1
    print(f"McMahan's CNN on {result['examples']} images of {result['data']}, {result['ranks']} ranks")
    for side in SIDES:
        print(f"{side:8} {median(best[side]):8.3f} s, the first time {median(first[side]):8.3f} s")
    print(f"workers / server {result['ratio']:.2f} ({min(ratios):.2f} - {max(ratios):.2f})")
    print(f"the same bits: {result['same_bits']}")
    advise(result["spread"])


def main() -> None:
    """Measure, judge, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=10_000, help="images of the test set (%(default)s)")
    parser.add_argument("--ranks", type=int, default=3, help="ranks, the server's among them (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=1000, help="examples of a batch (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="seconds, to see that it works")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    many = (1000, 1, 2) if options.quick else (options.examples, options.repeats, 4)
    examples, repeats, rounds = many
    result = measure(examples, options.ranks, repeats, rounds, options.batch_size)
    judge(result)
    save(options.json, result)


if __name__ == "__main__":
    main()
