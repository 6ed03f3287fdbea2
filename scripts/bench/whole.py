"""The whole of J1, from the command to its end, beside a bare loop: what a start costs a short training.

Both sides read no data but silos' own: mpifl its shards, the bare loop an npz file. They take turns. The
job is that of `round_overhead.py`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import bare
import numpy as np
from common import ENVIRONMENT, images, middle, save, write_silos
from round_overhead import EXAMPLES, LIMIT, TASKS, mpifl_rounds

BARE = """
import sys
import numpy as np
import bare
if __name__ == "__main__":
    rows = np.load(sys.argv[1])
    bare.seconds_of_rounds(rows["x"], rows["y"], bare.TASKS["J1"], int(sys.argv[2]))
"""


def measure(rounds: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each run of each side."""
    task = TASKS["J1"]
    x, y, _ = images(task.silos * EXAMPLES)
    seconds: dict[str, list[float]] = {"mpifl": [], "bare": []}
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        folder = Path(scratch)
        write_silos(folder / "shards", x, y, task.silos)
        np.savez(folder / "rows.npz", x=x, y=y)
        (folder / "main.py").write_text(BARE)
        alone = [sys.executable, str(folder / "main.py"), str(folder / "rows.npz"), str(rounds)]
        environment = {**ENVIRONMENT, "PYTHONPATH": str(Path(bare.__file__).parent)}
        for nth in range(repeats + 1):
            began = time.perf_counter()
            mpifl_rounds(folder, task, rounds - 1, folder / f"run{nth}", [])
            between = time.perf_counter()
            subprocess.run(alone, check=True, env=environment, timeout=LIMIT)
            if nth:  # the first run of each warms the disk's cache
                seconds["mpifl"].append(between - began)
                seconds["bare"].append(time.perf_counter() - between)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one run of each: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    seconds = measure(options.rounds, 1 if options.quick else options.repeats)
    ratios = [ours / theirs for ours, theirs in zip(*seconds.values(), strict=True)]
    for side, own in seconds.items():
        print(f"{side:8}{median(own):6.2f} s, {min(own):.2f} to {max(own):.2f}")
    print(f"ratio {middle(ratios)[0]:.2f} ({min(ratios):.2f} - {max(ratios):.2f})")
    save(options.json, {"seconds": seconds, "ratios": ratios})


if __name__ == "__main__":
    main()
