"""The exact sums of a regression and of a table's moments, beside numpy on the same rows and a read of them.

    python scripts/bench/gram_and_moments.py [--rows 10000000] [--columns 50] [--repeats 3] [--json FILE]

The Gram matrix is what silos send for `newton` with values as the outcome, with the score; the moments are
those of `stats`. Both are by the compiled loops and in tensor operations. The sides take turns in one process
with one thread. The processor's time is counted, so that others on the machine matter little.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy reads it when it is imported

import numpy as np
import torch
from common import advise, middle, save  # which has the tree measured that this file stands in

from mpifl.common.machine.tuning import keep_memory
from mpifl.data import Features
from mpifl.data.batches import Batches
from mpifl.data.shards import Split
from mpifl.sums import row_sums
from mpifl.wings.analysis import Newton, exact_products as exact
from mpifl.wings.analysis.column_moments import SUMS, moments_of, power_sums
from mpifl.wings.analysis.regression.families import FAMILIES
from mpifl.wings.analysis.regression.score_sums import RowSums, ScoreSums

TARGET = 0.5
"""The share of the memory's speed that is asked for."""
NUMPY_ROWS = 1 << 13
"""Rows that numpy takes at a time: 2^11 were as fast, 2^16 slower."""
WITHIN = 1e-9
"""What sides may differ by, in relation."""


class HeldSilo(NamedTuple):
    """A silo's rows in memory, as far as sums over them ask for it."""

    train: Batches

    def split(self, name: str) -> Batches:
        """Return the training examples."""
        return self.train


class Sides:
    """The ways to the same figures of rows x, float32 of shape [n, p]."""

    def __init__(self, x: np.ndarray) -> None:
        self.x, (rows, self.columns) = x, x.shape
        features = Features(shape=(self.columns,), dtype="float32")
        parts = np.array_split(x, -(-rows // exact.MOST_ROWS))
        splits = [Split(part, part[:, 0], "float32") for part in parts]
        cpu = torch.device("cpu")
        self.silos = [HeldSilo(Batches(split, features, cpu)) for split in splits]
        largest = torch.from_numpy(np.maximum(x.max(0), -x.min(0))).double()
        self.tops = exact.powers_above(torch.cat([torch.ones(1), largest, largest[:1]]).double())

    def read(self) -> int:
        """Read all rows once, as whole numbers of 64 bits, whose sum costs nothing beside."""
        even = self.x.reshape(-1)[: self.x.size // 2 * 2]
        return int(torch.from_numpy(even.view(np.int64)).sum())

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield rows in float64."""
        for at in range(0, len(self.x), NUMPY_ROWS):
            yield self.x[at : at + NUMPY_ROWS].astype(np.float64)

    def numpy_gram(self) -> np.ndarray:
        """Return the products of all pairs of columns, by numpy."""
        found = np.zeros((self.columns, self.columns))
        for block in self.blocks():
            found += block.T @ block
        return found

    def numpy_moments(self) -> np.ndarray:
        """Return means and variances, by numpy."""
        sums, squares = np.zeros(self.columns), np.zeros(self.columns)
        for block in self.blocks():
            sums += block.sum(0)
            squares += np.einsum("nc,nc->c", block, block)
        mean = sums / len(self.x)
        return np.stack([mean, (squares - sums * mean) / (len(self.x) - 1)])

    def gram(self) -> np.ndarray:
        """Return the products of all pairs of columns, as a fit finds them at coefficients of 0."""
        beta, none = torch.zeros(self.columns + 1, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        sums, newton = ScoreSums(FAMILIES["regression"], beta, self.tops), Newton()
        words = sum(sums.of(newton.blocks(silo, none)) for silo in self.silos)
        found: RowSums = sums.unpacked(words)
        return found.information[1:, 1:].numpy()

    def moments(self) -> np.ndarray:
        """Return means and variances, as a table of all rows has them."""
        tops, sums = self.tops[1:-1], torch.zeros(SUMS, self.columns, dtype=torch.int64)
        for silo in self.silos:
            for x, _ in silo.split("train").in_order(exact.BLOCK, shared=True):
                sums += power_sums(x, tops)
        each = zip(sums.T.tolist(), tops.tolist(), strict=True)
        found = [moments_of(column, top, len(self.x)) for column, top in each]
        return np.array([[one.mean for one in found], [(one.deviation or 0.0) ** 2 for one in found]])


def in_tensors(act: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
    """Return the same without the compiled loops."""

    def acted() -> np.ndarray:
        with patch.object(row_sums, "compiled", lambda: None):
            return act()

    return acted


def measure(rows: int, columns: int, repeats: int) -> dict[str, Any]:
    """Run all sides in turn; return the seconds of the processor that each took, repeat by repeat.

    Raises:
        AssertionError: the sides' figures differ.
    """
    sides = Sides(np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32))
    acts: dict[str, Callable[[], Any]] = {
        "read": sides.read,
        "numpy gram": sides.numpy_gram,
        "gram": sides.gram,
        "gram tensors": in_tensors(sides.gram),
        "numpy moments": sides.numpy_moments,
        "moments": sides.moments,
        "moments tensors": in_tensors(sides.moments),
    }
    seconds: dict[str, list[float]] = {name: [] for name in acts}
    found = dict[str, Any]()
    for _ in range(repeats):
        for name, act in acts.items():
            began = time.process_time()
            found[name] = act()
            seconds[name].append(time.process_time() - began)
    for name in ("gram", "moments"):
        ours, theirs = found[name], found[f"numpy {name}"]
        assert np.abs(ours - theirs).max() <= WITHIN * np.abs(theirs).max(), name
        assert np.array_equal(ours, found[f"{name} tensors"]), name
    return {"rows": rows, "columns": columns, "bytes": sides.x.nbytes, "seconds": seconds}


def judge(result: dict[str, Any]) -> None:
    """Put speeds and ratios into the result, and print them."""
    seconds, size = result["seconds"], result["bytes"]
    print(f"{result['rows']:,} x {result['columns']}, {size / 1e9:.2f} GB, one thread")
    result["shares"] = {}
    for name, taken in seconds.items():
        shares = [read / own for read, own in zip(seconds["read"], taken, strict=True)]
        result["shares"][name] = median(shares)
        print(
            f"{name:16}{median(taken):8.2f} s{size / 1e9 / median(taken):8.2f} GB/s"
            f"{median(shares):8.4f} of the memory's speed ({min(shares):.4f} - {max(shares):.4f})"
        )
    result["ratios"] = {}
    for name in ("gram", "moments"):
        pairs = zip(seconds[name], seconds[f"numpy {name}"], strict=True)
        ratios = [ours / theirs for ours, theirs in pairs]
        ratio, spread = middle(ratios)
        result["ratios"][name] = {"ratio": ratio, "spread": spread}
        met = "met" if result["shares"][name] >= TARGET else "missed"
        print(f"{name}: {ratio:.2f} of numpy's time ({min(ratios):.2f} - {max(ratios):.2f})")
        print(f"{name}: target of {TARGET} of the memory's speed {met}")
    advise(max(one["spread"] for one in result["ratios"].values()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="(%(default)s)")
    parser.add_argument("--columns", type=int, default=50, help="(%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="turns of all sides (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="few rows, once: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()  # as each rank does
    rows, repeats = (20_000, 1) if options.quick else (options.rows, options.repeats)
    result = measure(rows, options.columns, repeats)
    judge(result)
    save(options.json, result)


if __name__ == "__main__":
    main()
