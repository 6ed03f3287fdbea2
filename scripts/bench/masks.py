"""What it takes a party to mask its sums, in CPU seconds of one core.

    python scripts/bench/masks.py --neighbours 1 3 7 --numbers 11000000 --json result.json

In each repeat all rows take turns: adding one vector of int64 to another, the sums without masks (a pass that
copies them), and the sums with the masks of so many other parties. The figure is a row's CPU time less that
without masks, by the number of neighbours.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import advise, middle, save

from mpifl.wings.masked.pair_masks import add_masks

CONTEXT = bytes(32)
WITHOUT = "without masks"


def rows(numbers: int, neighbours: list[int]) -> dict[str, Callable[[], Any]]:
    """Return what is timed."""
    sums, masked = torch.arange(numbers), torch.zeros(numbers, dtype=torch.int64)
    secrets = {rank: hashlib.sha256(b"%d" % rank).digest() for rank in range(1, max(neighbours) + 1)}

    def with_masks(count: int) -> None:
        masked.copy_(sums)
        add_masks([masked], {rank: secrets[rank] for rank in range(1, count + 1)}, 0, CONTEXT)

    return {
        "add": lambda: masked.add_(sums),
        WITHOUT: partial(with_masks, 0),
        **{f"{count} neighbours": partial(with_masks, count) for count in neighbours},
    }


def timed(act: Callable[[], Any]) -> float:
    """Return the CPU milliseconds that a call takes."""
    start = time.process_time()
    act()
    return 1e3 * (time.process_time() - start)


def measure(numbers: int, neighbours: list[int], repeats: int) -> dict[str, list[float]]:
    """Time all rows in turns, and return the milliseconds of each repeat but the first, which warms up."""
    acts = rows(numbers, neighbours)
    taken: dict[str, list[float]] = {name: [] for name in acts}
    for repeat in range(1 + repeats):
        for name, act in acts.items():
            milliseconds = timed(act)
            if repeat:
                taken[name].append(milliseconds)
    return taken


def each(taken: dict[str, list[float]], count: int) -> tuple[float, float]:
    """Return the milliseconds for each of so many neighbours, and their spread."""
    pairs = zip(taken[f"{count} neighbours"], taken[WITHOUT], strict=True)
    return middle([(masked - plain) / count for masked, plain in pairs])


def main() -> None:
    """Time all rows, and print milliseconds for each neighbour."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[1, 3, 7])
    parser.add_argument("--numbers", type=int, default=11_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="two repeats of short vectors")
    options = parser.parse_args()
    if options.quick:
        options.numbers, options.repeats = 100_000, 2
    torch.set_num_threads(1)
    taken = measure(options.numbers, options.neighbours, options.repeats)
    for count in options.neighbours:
        took = f"{each(taken, count)[0]:.1f} ms of CPU each"
        print(f"{count} neighbours: {took} for {options.numbers:,} numbers")
    print(f"adding a vector: {middle(taken['add'])[0]:.1f} ms; {WITHOUT}: {middle(taken[WITHOUT])[0]:.1f} ms")
    advise(max(each(taken, count)[1] for count in options.neighbours))
    save(options.json, {"numbers": options.numbers, "milliseconds": taken})


if __name__ == "__main__":
    main()
