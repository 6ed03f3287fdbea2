"""A CSV table into standardised features, beside what pandas takes to read it: the ratio of the two.

    python scripts/bench/table.py [--rows 400000] [--columns 20] [--repeats 5] [--json FILE]

The table has numbers of six digits and a label. Both read it in turn in one process, so that whatever else
the machine does meets both; pandas also brings its columns to mean 0 and deviation 1. Without pandas this
package is measured alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from common import save  # which has the tree measured that this file stands in

from data_prep.sources.source_registry import SOURCES

try:
    import pandas
except ImportError:
    pandas = None
MOST = 1.5
"""Seconds that 400,000 rows of 20 columns may take."""


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = _table(Path(folder), arguments.rows, arguments.columns)

        def plain() -> float:
            x = pandas.read_csv(path).drop(columns="y")
            return float(((x - x.mean()) / x.std(ddof=0)).to_numpy(np.float32).std())

        def ours() -> float:
            return float(np.asarray(SOURCES["csv"](path, 0).x).std())

        acts = [ours] if pandas is None else [plain, ours]
        told = [act() for act in acts]  # both have read the file once, and mean the same
        assert np.allclose(told, 1, atol=1e-3), told
        rounds = [[_seconds(act) for act in acts] for _ in range(arguments.repeats)]
        size = path.stat().st_size
    print(f"{arguments.rows:,} x {arguments.columns}, {size / 1e6:.1f} MB, {arguments.repeats} rounds")
    own = median(one[-1] for one in rounds)
    print(f"table {own:.2f} s (median); asked: at most {MOST} for 400,000 x 20")
    ratios = sorted(one / other for other, one in rounds) if pandas is not None else []
    if ratios:
        print(f"pandas {median(other for other, _ in rounds):.2f} s (median)")
        print(f"ratio of a round: median {median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}")
    save(arguments.json, {"bytes": size, "seconds": rounds, "ratios": ratios})


def _table(folder: Path, rows: int, columns: int) -> Path:
    """Write a table and its spec."""
    draw = np.random.default_rng(0)
    names = [f"c{at}" for at in range(columns)]
    path = folder / "t.csv"
    with path.open("w") as file:
        file.write(",".join([*names, "y"]) + "\n")
        for start in range(0, rows, 10_000):
            values = draw.normal(50, 10, (min(10_000, rows - start), columns))
            lines = (",".join([f"{value:.6g}" for value in row]) for row in values.tolist())
            file.writelines(f"{line},{'ab'[at % 2]}\n" for at, line in enumerate(lines))
    features = "".join(f'{name} = "numeric"\n' for name in names)
    path.with_suffix(".toml").write_text(f'label = "y"\nstandardise = "own"\n[features]\n{features}')
    return path


def _seconds(act: Callable[[], float]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", help="where to write; the default is the system's for temporary files")
    parser.add_argument("--quick", action="store_true", help="few rows, once: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.repeats = 2_000, 1
    return options


if __name__ == "__main__":
    main()
