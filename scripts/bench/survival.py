"""What a round costs under a launcher that lets ranks die alone (`--survive`), beside one that does not.

    python scripts/bench/survival.py --job J2 --repeats 4 --json result.json

Jobs J1, J2, J3 are those of `round_overhead.py`, on 3 ranks of which 2 train. Three sides take turns, the
order reversed each time: `mpirun`; `mpirun --with-ft ulfm`; the same with `[checkpoint] mirror = true`.
Nobody dies.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bare import EXAMPLES, TASKS
from common import advise, images, middle, save, write_silos
from round_overhead import WARMUP, mpifl_rounds

ULFM = ["--with-ft", "ulfm"]
SIDES: dict[str, tuple[list[str], list[str]]] = {
    "mpirun": ([], []),
    "ulfm": (ULFM, []),
    "ulfm, mirror": (ULFM, ["checkpoint.mirror=true"]),
}
TARGET = 1.05


def measure(name: str, rounds: int, repeats: int) -> dict[str, Any]:
    """Run all sides in turn; return, for each run, the seconds of its rounds after the warm-up."""
    task = TASKS[name]
    x, y, data = images(task.silos * EXAMPLES)
    seconds: dict[str, list[list[float]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        folder = Path(scratch)
        write_silos(folder / "shards", x, y, task.silos)
        for nth in range(repeats):
            for side in reversed(SIDES) if nth % 2 else SIDES:
                flags, settings = SIDES[side]
                run = folder / f"run{nth}-{len(seconds[side])}-{side}"
                seconds[side].append(mpifl_rounds(folder, task, WARMUP + rounds, run, settings, flags))
    return {"job": name, "data": data, "seconds": seconds}


def judge(result: dict[str, Any]) -> None:
    """Put the ratios of medians to the plain launcher's into the result, and print them."""
    seconds = result["seconds"]
    runs, rounds = len(seconds["mpirun"]), len(seconds["mpirun"][0])
    print(
        f"{result['job']} on {result['data']}: {TASKS[result['job']].about}; "
        f"{runs} runs of {rounds} rounds a side"
    )
    print(f"{'':14}{'ms a round':>12}{'best ms':>9}{'ratio':>8}{'from - to':>16}{'of best':>9}")
    result["ratios"] = {}
    for side, own in seconds.items():
        ratios = [median(ours) / median(plain) for ours, plain in zip(own, seconds["mpirun"], strict=True)]
        ratio, spread = middle(ratios)
        best = min(map(min, own)) / min(map(min, seconds["mpirun"]))
        result["ratios"][side] = {"ratio": ratio, "spread": spread, "ratio_of_best": best}
        times = f"{1e3 * median(map(median, own)):12.1f}{1e3 * min(map(min, own)):9.1f}"
        extremes = f"{min(ratios):.3f} - {max(ratios):.3f}"
        print(f"{side:14}{times}{ratio:8.3f}{extremes:>16}{best:9.3f}")
    print(
        f"target {TARGET:.2f} {'met' if result['ratios']['ulfm']['ratio'] <= TARGET else 'missed'}",
        flush=True,
    )
    advise(max(own["spread"] for own in result["ratios"].values()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--job", choices=[*TASKS, "all"], default="J1", help="(%(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=30, help="rounds of a run after the warm-up (%(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=4, help="runs of each side (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one run of 3 rounds: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.repeats = 3, 1
    if min(options.rounds, options.repeats) < 1:
        parser.error("--rounds and --repeats must be at least 1")
    results = []
    for name in TASKS if options.job == "all" else [options.job]:
        results.append(measure(name, options.rounds, options.repeats))
        judge(results[-1])
    save(options.json, {"jobs": results})


if __name__ == "__main__":
    main()
