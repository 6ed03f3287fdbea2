"""MNIST into shards, beside a plain read of its files and a plain write of as many bytes: the ratio of the
two.

    python scripts/bench/partition.py [--silos 100] [--repeats 9] [--scheme shards] [--jobs N]

The two alternate in one process, so that whatever else the machine does meets both. $MPIFL_DATA names the
folder that holds mnist/.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from common import save  # which has the tree measured that this file stands in

from data_prep.cut.partitioning import WriteOptions, partition
from data_prep.schemes.holdout import Shares
from data_prep.write.making import default_jobs


def main() -> None:
    arguments = _arguments()
    source = Path(arguments.data)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        target = Path(folder) / "target"

        def plain() -> None:
            content = b"".join(gzip.decompress(path.read_bytes()) for path in sorted(source.iterdir()))
            room = arguments.bytes - len(content)
            target.write_bytes(content + bytes(max(room, 0)))

        def ours() -> None:
            manner = WriteOptions(arguments.jobs)
            common = {"options": {}, "shares": Shares(), "manner": manner}
            partition("mnist", source, target, arguments.scheme, arguments.silos, 0, **common)

        ours()
        arguments.bytes = sum(path.stat().st_size for path in target.iterdir())
        shutil.rmtree(target)
        pairs = [(_seconds(plain, target), _seconds(ours, target)) for _ in range(arguments.repeats)]
    ratios = sorted(one / other for other, one in pairs)
    baseline, partitioned = (median(column) for column in zip(*pairs, strict=True))
    size = f"{arguments.bytes / 1e6:.1f} MB, {arguments.silos} silos"
    print(f"{size}, {arguments.jobs} threads, {arguments.repeats} pairs")
    print(f"plain read and write {baseline:.3f} s, partition {partitioned:.3f} s (medians)")
    print(
        f"ratio of a pair: median {median(ratios):.2f}, "
        f"from {ratios[0]:.2f} to {ratios[-1]:.2f}; asked: at most 3"
    )
    seconds = {"plain": baseline, "partition": partitioned}
    save(arguments.json, {"bytes": arguments.bytes, "seconds": seconds, "ratios": ratios})


def _seconds(act: Callable[[], None], target: Path) -> float:
    start = time.perf_counter()
    act()
    seconds = time.perf_counter() - start
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    return seconds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--silos", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--scheme", default="shards")
    parser.add_argument("--jobs", type=int, default=default_jobs())
    parser.add_argument(
        "--data", default=os.path.expandvars("$MPIFL_DATA/mnist"), help="the folder of its four files"
    )
    parser.add_argument(
        "--folder", help="where to write; the default is the system's folder for temporary files"
    )
    parser.add_argument("--quick", action="store_true", help="one pair: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.quick:
        options.repeats = 1
    if not Path(options.data).is_dir():
        parser.error(f"--data {options.data}: no such folder; set MPIFL_DATA to the folder that holds mnist/")
    return options


if __name__ == "__main__":
    main()
