"""What a round costs, term by term: fitted to what `scaling.py` measured, and held against other points.

    python scripts/bench/scaling.py --json scaling.json && python scripts/bench/model.py scaling.json

Seconds of a round = training of the slowest worker + the rest.
  training = n (t1 + t2 V) + s (t3 + t4 V)   n: silos of a worker in the round, s: its steps, V: MB of model
  the rest = r1 + r2 K + r3 V + r4 V log2(ranks)    K: silos of the round
log2(ranks) counts the levels of the tree of sums. It is fitted to the least of a point's rounds, which other
work on the machine has met least, and only to points whose workers have a core each. The part `unseen` is
left out of the fit; how far its points are from what the terms give is what the fit is worth. It says nothing
of networks: none was measured.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import save
from scaling import UNSEEN

TRAINING = {
    "t1 a silo": lambda row: row["per_worker"],
    "t2 a silo and MB": lambda row: row["per_worker"] * row["megabytes"],
    "t3 a step": lambda row: row["worker_steps"],
    "t4 a step and MB": lambda row: row["worker_steps"] * row["megabytes"],
}
REST = {
    "r1 a round": lambda row: 1.0,
    "r2 a silo at the server": lambda row: row["drawn"],
    "r3 a MB": lambda row: row["megabytes"],
    "r4 a MB and level": lambda row: row["megabytes"] * math.log2(row["ranks"]),
}
"""The terms: what each coefficient, in seconds, is multiplied by."""


def fit(
    rows: Sequence[Mapping[str, Any]], terms: Mapping[str, Any], seconds: Sequence[float]
) -> dict[str, float]:
    """Return coefficients that are not negative and make the relative errors' squares least.

    The terms that would be negative are left out, the worst first: they are not to be told from the others.
    """
    used = list(terms)
    while True:
        table = np.array([[terms[name](row) for name in used] for row in rows]) / np.array(seconds)[:, None]
        found = np.linalg.lstsq(table, np.ones(len(rows)), rcond=None)[0]
        worth = found * table.mean(0)
        if not used or worth.min() >= 0:
            return dict.fromkeys(terms, 0.0) | dict(zip(used, map(float, found), strict=True))
        used.pop(int(worth.argmin()))


def value(coefficients: Mapping[str, float], terms: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """Return the seconds that the terms give for a row."""
    return sum(seconds * terms[name](row) for name, seconds in coefficients.items())


def usable(measured: Mapping[str, Any], *, unseen: bool = False) -> list[dict[str, Any]]:
    """Return the points whose workers had a core each, with a worker's part of the round.

    Args:
        measured: What `scaling.py` wrote.
        unseen: Return the points that nothing is to be fitted to, in place of the others.
    """
    parts = [rows for part, rows in measured["parts"].items() if (part == UNSEEN) == unseen]
    rows = [row for part in parts for row in part if row["workers"] <= measured["cores"]]
    shares = [math.ceil(row["drawn"] / row["workers"]) for row in rows]
    return [
        {**row, "per_worker": n, "worker_steps": n * row["steps"]}
        for row, n in zip(rows, shares, strict=True)
    ]


def errors(
    rows: Sequence[Mapping[str, Any]], training: Mapping[str, float], rest: Mapping[str, float]
) -> list[float]:
    """Return how far the terms are from each row's least seconds, as a share of them."""
    guesses = [value(training, TRAINING, row) + value(rest, REST, row) for row in rows]
    return [guess / sum(row["least"].values()) - 1 for guess, row in zip(guesses, rows, strict=True)]


def show(
    rows: list[dict[str, Any]],
    unseen: list[dict[str, Any]],
    training: dict[str, float],
    rest: dict[str, float],
) -> dict[str, Any]:
    """Print the coefficients, and how far they are from what was measured."""
    for name, seconds in {**training, **rest}.items():
        print(f"  {name:26}{1e6 * seconds:12.2f} us")
    fitted, held = errors(rows, training, rest), errors(unseen, training, rest)
    off = {"median": median(map(abs, fitted)), "largest": max(map(abs, fitted)), "unseen": held}
    print(f"fitted to {len(rows)} points; off by {off['median']:.0%} (median), at most {off['largest']:.0%}")
    for row, error in zip(unseen, held, strict=True):
        shape = f"{row['drawn']} silos, {row['steps']} steps each, {row['megabytes']:.1f} MB"
        least = 1e3 * sum(row["least"].values())
        print(f"unseen: {shape}, {row['ranks']} ranks: {least:.1f} ms a round, the terms give {error:+.0%}")
    return off


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "scaling", type=Path, nargs="+", help="what scaling.py wrote by --json, in one file or several"
    )
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    files = [json.loads(path.read_text()) for path in options.scaling]
    rows = [row for file in files for row in usable(file)]
    unseen = [row for file in files for row in usable(file, unseen=True)]
    if len(rows) <= len(TRAINING) or not unseen:
        parser.error(f"{len(rows)} usable points, {len(unseen)} unseen; run scaling.py with all its parts")
    training = fit(rows, TRAINING, [row["least"]["training"] for row in rows])
    rest = fit(rows, REST, [row["least"]["rest"] for row in rows])
    off = show(rows, unseen, training, rest)
    save(options.json, {"training": training, "rest": rest, "off": off})


if __name__ == "__main__":
    main()
