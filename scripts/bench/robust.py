"""What rules of columns and by weights cost: the processor's seconds of one core for a million columns.

    python scripts/bench/robust.py --silos 16 25 100 --json result.json

Kernels take turns, in one process on one thread, on the same float32 vectors in blocks as the ranks see them:
the median; the Gram matrix of blocks as a plain float64 product, with digits that make its sum exact, and the
weighted sum that follows. Ranks share this work.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

import torch
from common import save
from torch import Tensor

from mpifl.wings.robust.column_rules import rule_of
from mpifl.wings.robust.column_slices import BLOCK
from mpifl.wings.robust.gram import Digits
from mpifl.wings.robust.weighing import Weighing
from mpifl.wings.robust.weight_rules import RFA
from mpifl.wire import pieces_of


def plain_gram(rows: Sequence[Tensor]) -> Tensor:
    values = torch.stack(list(rows)).double()
    return values @ values.T


def kernels(silos: int) -> dict[str, Callable[[Sequence[Tensor]], object]]:
    """Return what is timed, by name: functions of a block of rows."""
    digits = Digits(silos)
    weighted = Weighing("rfa", RFA()).rule_after(
        torch.full((1, silos), 1 / silos, dtype=torch.float64), silos
    )
    return {
        "median": rule_of("median", None),
        "plain Gram": plain_gram,
        "exact Gram": lambda rows: digits.add(plain_gram(rows)),
        "weighted sum": weighted,
    }


def measure(silos: int, columns: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each kernel for a million columns, repeat by repeat."""
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randn(columns, generator=draw) for _ in range(silos)]
    timed = kernels(silos)
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(repeats):
        for name, act in timed.items():
            began = time.process_time()
            for block in pieces_of(columns, BLOCK):
                act([row[block] for row in rows])
            taken[name].append((time.process_time() - began) * 1e6 / columns)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--silos", type=int, nargs="+", default=[16, 25, 100], help="(%(default)s)")
    parser.add_argument("--columns", type=int, default=1 << 20, help="(%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if min(*options.silos, options.columns) < 1 or options.repeats < 2:
        parser.error("--silos and --columns must be at least 1, --repeats 2")
    torch.set_num_threads(1)
    found = {silos: measure(silos, options.columns, options.repeats) for silos in options.silos}
    for silos, taken in found.items():
        print(f"{silos} silos, seconds of one core for a million columns")
        for name, seconds in taken.items():
            low, _, high = quantiles(seconds, n=4)
            print(f"  {name:14} {median(seconds):.4f}  (half of the repeats: {low:.4f} to {high:.4f})")
    save(options.json, {"columns": options.columns, "seconds": found})


if __name__ == "__main__":
    main()
