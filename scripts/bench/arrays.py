"""Arrays of a file or folder into shards, beside numpy that shuffles and writes as many bytes: seconds a GB.

    python scripts/bench/arrays.py [--source npy] [--megabytes 512] [--silos 4] [--repeats 5] [--json FILE]

Both alternate in one process, so that whatever else the machine does meets both. The seconds of the processor
stand beside those of the clock: other programs change them less. A third figure is what the
sha256 of as many bytes takes: each file that is read has one, and each shard that is written, and a processor
without instructions for it does nothing faster.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import h5py
import numpy as np
from common import save  # which has the tree measured that this file stands in

from data_prep.cut.partitioning import WriteOptions, partition
from data_prep.schemes.holdout import Shares
from data_prep.write.making import default_jobs
from mpifl.common import sha256_of

WIDTH = 1024
"""Numbers of an example, float32."""
MOST = 2.0
"""Seconds that a GB may take."""


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        source, target = Path(folder) / "in", Path(folder) / "target"
        size = _written(source, int(arguments.megabytes * 1e6))
        data = _stored(arguments.source, source)

        def plain() -> None:
            x = np.load(source / "x.npy")
            np.save(target.with_suffix(".npy"), x[np.random.default_rng(0).permutation(len(x))])

        def digest() -> None:
            sha256_of(source / "x.npy")

        def ours() -> None:
            manner = WriteOptions(arguments.jobs)
            common = {"options": {}, "shares": Shares(), "manner": manner}
            partition(arguments.source, data, target, "iid", arguments.silos, 0, **common)

        ours()
        shutil.rmtree(target)
        acts = [plain, digest, ours]
        both = [[_seconds(act, target) for act in acts] for _ in range(arguments.repeats)]
    rounds = [[clock * 1e9 / size for clock, _ in row] for row in both]
    busy = [[processor * 1e9 / size for _, processor in row] for row in both]
    ratios = sorted(one / other for other, _, one in rounds)
    names = ("plain numpy", "sha256 alone", "partition")
    print(
        f"{size / 1e6:.0f} MB, {arguments.silos} silos, {arguments.jobs} threads, {arguments.repeats} rounds"
    )
    print(f"seconds a GB (medians): {_told(names, rounds)}; asked: at most {MOST}")
    print(f"of the processor: {_told(names, busy)}")
    print(f"ratio to numpy: median {median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}")
    save(
        arguments.json,
        {"bytes": size, "seconds_a_gigabyte": rounds, "of_the_processor": busy, "ratios": ratios},
    )


def _told(names: tuple[str, ...], rounds: list[list[float]]) -> str:
    columns = zip(names, zip(*rounds, strict=True), strict=True)
    return ", ".join(f"{name} {median(column):.2f}" for name, column in columns)


def _stored(kind: str, folder: Path) -> Path:
    """Store the arrays of a folder as a source reads them, and return where."""
    x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy")
    if kind == "npz":
        np.savez(folder / "own.npz", x=x, y=y)
    elif kind == "hdf5":
        with h5py.File(folder / "own.h5", "w") as file:
            file["x"], file["y"] = x, y
    return {"npy": folder, "npz": folder / "own.npz", "hdf5": folder / "own.h5"}[kind]


def _written(folder: Path, size: int) -> int:
    """Write x and y of so many bytes, and return how many x has."""
    folder.mkdir()
    rows = max(size // (4 * WIDTH), 8)
    draw = np.random.default_rng(0)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (rows, WIDTH))
    for start in range(0, rows, 4096):
        x[start : start + 4096] = draw.standard_normal((min(4096, rows - start), WIDTH), np.float32)
    x.flush()
    np.save(folder / "y.npy", draw.integers(0, 10, rows))
    return int(x.nbytes)


def _seconds(act: Callable[[], None], target: Path) -> tuple[float, float]:
    """Return the seconds of the clock and of the processor that an act takes."""
    start, busy = time.perf_counter(), time.process_time()
    act()
    seconds = time.perf_counter() - start, time.process_time() - busy
    shutil.rmtree(target, ignore_errors=True)
    return seconds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", choices=["npy", "npz", "hdf5"], default="npy")
    parser.add_argument("--megabytes", type=float, default=512)
    parser.add_argument("--silos", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=default_jobs())
    parser.add_argument("--folder", help="where to write; the default is the system's for temporary files")
    parser.add_argument("--quick", action="store_true", help="few rows, once: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.quick:
        options.megabytes, options.repeats = 1, 1
    return options


if __name__ == "__main__":
    main()
