"""What a round costs, term by term, fitted to what `scaling.py` measured; and what that makes of many nodes.

    python scripts/bench/model.py scaling.json --nodes 1000 --bandwidth 25 --latency 2

Seconds of a round = training of the slowest worker + the rest.
  training = n (t1 + t2 V) + s (t3 + t4 V)   n: silos of a worker in the round, s: its steps, V: MB of model
  the rest = r1 + r2 K + r3 V + r4 V log2(ranks)    K: silos of the round
log2(ranks) counts the levels of the tree of sums. For N nodes with a worker on each, the same terms hold with
N + 1 ranks, and a network is crossed, which is not measured but taken from the options: a broadcast and a sum
take a latency at each level; the model goes down by pieces that follow each other (V / bandwidth, once), and
the root of the tree takes a sum in from each level (--up x V x levels / bandwidth). The server reads K
headers, one after another (r2 K). Not in it: silos that train unequally long, other traffic, several networks
in a node, a topology.
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

SERVER = "r2 a silo at the server"
TRAINING = {
    "t1 a silo": lambda row: row["per_worker"],
    "t2 a silo and MB": lambda row: row["per_worker"] * row["megabytes"],
    "t3 a step": lambda row: row["worker_steps"],
    "t4 a step and MB": lambda row: row["worker_steps"] * row["megabytes"],
}
REST = {
    "r1 a round": lambda row: 1.0,
    SERVER: lambda row: row["drawn"],
    "r3 a MB": lambda row: row["megabytes"],
    "r4 a MB and level": lambda row: row["megabytes"] * math.log2(row["ranks"]),
}
"""The terms: what each coefficient, in seconds, is multiplied by."""
CASES = {
    "J1's silos, one a node: 2NN, 60 steps": {"megabytes": 0.8, "steps": 60},
    "J2's, one a node: 11.0 M parameters, 1 step": {"megabytes": 43.9, "steps": 1},
    "11.0 M parameters, 100 steps": {"megabytes": 43.9, "steps": 100},
}


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


def usable(measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the points whose workers had a core each, with a worker's part of the round."""
    rows = [row for part in measured["parts"].values() for row in part if row["workers"] <= measured["cores"]]
    shares = [math.ceil(row["drawn"] / row["workers"]) for row in rows]
    return [
        {**row, "per_worker": n, "worker_steps": n * row["steps"]}
        for row, n in zip(rows, shares, strict=True)
    ]


def predict(
    training: Mapping[str, float],
    rest: Mapping[str, float],
    case: Mapping[str, Any],
    nodes: int,
    network: Mapping[str, float],
) -> dict[str, float]:
    """Return the parts in seconds of a round in which every node trains one silo."""
    row = {**case, "drawn": nodes, "ranks": nodes + 1, "per_worker": 1, "worker_steps": case["steps"]}
    levels, gigabytes = math.ceil(math.log2(nodes + 1)), case["megabytes"] / 1e3
    crossing = (
        2 * levels * network["latency"] * 1e-6
        + (1 + network["up"] * levels) * gigabytes / network["bandwidth"]
    )
    headers = value({SERVER: rest[SERVER]}, REST, row)
    return {
        "training": value(training, TRAINING, row),
        "headers": headers,
        "sums": value(rest, REST, row) - headers,
        "network": crossing if nodes > 1 else 0.0,
    }


def show_fit(
    rows: list[dict[str, Any]], training: dict[str, float], rest: dict[str, float]
) -> dict[str, float]:
    """Print the coefficients and how far the fit is from what was measured."""
    for name, seconds in {**training, **rest}.items():
        print(f"  {name:26}{1e6 * seconds:12.2f} us")
    errors = []
    for row in rows:
        guess = value(training, TRAINING, row) + value(rest, REST, row)
        errors.append(guess / median(row["seconds"]) - 1)
    off = {"median": median(map(abs, errors)), "largest": max(map(abs, errors))}
    print(f"fitted to {len(rows)} points; off by {off['median']:.0%} (median), at most {off['largest']:.0%}")
    return off


def show_nodes(
    training: dict[str, float], rest: dict[str, float], nodes: Sequence[int], network: dict[str, float]
) -> Any:
    """Print what the fit says of N nodes, and the share of the round that is training."""
    print(f"predicted, not measured; a network of {network['bandwidth']:g} GB/s, {network['latency']:g} us")
    table: dict[str, Any] = {}
    for name, case in CASES.items():
        heads = "".join(f"{head:>10}" for head in ("training", "headers", "sums", "network"))
        print(f"{name}\n{'nodes':>8}{'ms a round':>12}{heads}{'efficiency':>12}")
        for count in nodes:
            parts = predict(training, rest, case, count, network)
            total = sum(parts.values())
            columns = "".join(f"{1e3 * seconds:10.2f}" for seconds in parts.values())
            print(f"{count:8}{1e3 * total:12.2f}{columns}{parts['training'] / total:12.0%}")
            table.setdefault(name, {})[count] = parts
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "scaling", type=Path, nargs="+", help="what scaling.py wrote by --json, in one file or several"
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 10, 100, 1000], help="(%(default)s)")
    parser.add_argument(
        "--bandwidth", type=float, default=25.0, help="GB/s of a node's network (%(default)s)"
    )
    parser.add_argument("--latency", type=float, default=2.0, help="us of a message (%(default)s)")
    parser.add_argument(
        "--up", type=float, default=2.0, help="bytes of a sum on its way, of the model's (%(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    rows = [row for path in options.scaling for row in usable(json.loads(path.read_text()))]
    if len(rows) <= len(TRAINING):
        parser.error(f"{len(rows)} usable points; run scaling.py with all its parts")
    training = fit(rows, TRAINING, [median(row["training"]) for row in rows])
    rest = fit(rows, REST, [median(row["seconds"]) - median(row["training"]) for row in rows])
    off = show_fit(rows, training, rest)
    network = {"bandwidth": options.bandwidth, "latency": options.latency, "up": options.up}
    predicted = show_nodes(training, rest, options.nodes, network)
    save(
        options.json,
        {"training": training, "rest": rest, "off": off, "network": network, "predicted": predicted},
    )


if __name__ == "__main__":
    main()
