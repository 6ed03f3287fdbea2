"""How much sooner two ranks train a silo together than one, by the work of a batch.

    python scripts/bench/crews.py --json result.json

One silo, on 3 ranks of which 2 train, in one world. Three sides take turns: one rank takes whole batches; one
rank takes them by two parts; a crew of two ranks takes a part each. The least seconds of a round count, since
whatever else runs only adds to them; beside them stand the busiest rank's CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import NEVER, images, save, start_ranks, write_silos

EXAMPLES = 512
SIDES = {"one": {"ranks": 1}, "one, 2 parts": {"ranks": 1, "parts": 2}, "crew of 2": {"ranks": 2}}
BATCHES = (4, 16, 32)
TARGET = 1.7
"""At 20 ms of work a batch, where cores are free."""


def convolutions(shape: tuple[int, ...], classes: int) -> Any:
    """A model with little to add up, 29,000 parameters, for much work."""
    from torch import nn

    layers = []
    for channels, wider in ((shape[0], 32), (32, 32), (32, 64)):
        layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def on_each_rank(folder: Path, model: str, batches: list[int], rounds: int, repeats: int) -> None:
    """Train all sides in turn; leave what each round and each rank took in the folder."""
    from mpifl.training.loop import train
    from mpifl.wings import wings_of
    from mpifl.wire.launching import world

    transport = world()
    took: list[dict[str, Any]] = []
    for nth in range(repeats):
        for batch in batches:
            for side, crew in SIDES.items():
                job = {
                    "name": "crews",
                    "shards": str(folder / "shards"),
                    "rounds": rounds,
                    "device": "cpu",
                    "model": {"name": model},
                    "local": {"lr": 0.01, "batch_size": batch, "steps": max(EXAMPLES // batch, 8)},
                    "silo": crew,
                    "evaluate": {"every": NEVER, "silos": False},
                    "checkpoint": {"every": NEVER},
                }
                seconds: list[float] = []

                def note(record: Any, seconds: list[float] = seconds) -> bool:
                    seconds.append(record["seconds"])
                    return False

                cpu = time.process_time()
                train(
                    job,
                    folder / f"{nth}-{batch}-{side}",
                    (),
                    False,
                    transport,
                    on_round=note,
                    wings_of=wings_of,
                )
                spent = (time.process_time() - cpu) / rounds
                took.append({"batch": batch, "side": side, "seconds": seconds, "cpu": spent})
    (folder / f"took{transport.rank}.json").write_text(json.dumps(took))


def measure(model: str, batches: list[int], rounds: int, repeats: int) -> list[dict[str, Any]]:
    """Return, for each size of a batch and each side, the least milliseconds of a batch, and of the CPU."""
    x, y, data = images(EXAMPLES)
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        folder = Path(scratch)
        write_silos(folder / "shards", x, y, 1)
        program = [
            __file__,
            "--rank",
            scratch,
            "--model",
            model,
            f"--rounds={rounds}",
            f"--repeats={repeats}",
        ]
        program += ["--batches", *map(str, batches)]
        start_ranks(program, 3, 900, folder / "log")
        ranks = [json.loads((folder / f"took{rank}.json").read_text()) for rank in range(3)]
    found = []
    for batch in batches:
        for side in SIDES:
            mine = [[one for one in took if (one["batch"], one["side"]) == (batch, side)] for took in ranks]
            each = 1e3 / max(EXAMPLES // batch, 8)
            wall = each * min(seconds for one in mine[0] for seconds in one["seconds"][1:])
            cpu = each * min(max(one["cpu"] for one in turn) for turn in zip(*mine[1:], strict=True))
            found.append({"batch": batch, "side": side, "ms": wall, "cpu_ms": cpu, "data": data})
    return found


def judge(found: list[dict[str, Any]]) -> None:
    """Print the milliseconds of a batch, and how often one rank's hold a crew's."""
    print(f"{'examples a batch':>17} {'side':14}{'ms':>8}{'CPU ms':>8}{'times':>8}{'by CPU':>8}")
    for one in found:
        alone = next(other for other in found if other["batch"] == one["batch"])
        one["times"], one["times_cpu"] = alone["ms"] / one["ms"], alone["cpu_ms"] / one["cpu_ms"]
        figures = f"{one['ms']:8.2f}{one['cpu_ms']:8.2f}{one['times']:8.2f}{one['times_cpu']:8.2f}"
        print(f"{one['batch']:17} {one['side']:14}{figures}")
    print(f"aimed at: {TARGET} times at 20 ms a batch, where two cores are free")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="crews:convolutions", help="(%(default)s)")
    parser.add_argument("--batches", type=int, nargs="+", default=[*BATCHES], help="examples of a batch")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of a run (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one short run: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.repeats, options.batches = 2, 1, options.batches[:2]
    if options.rank is not None:
        on_each_rank(options.rank, options.model, options.batches, options.rounds, options.repeats)
        return
    found = measure(options.model, options.batches, options.rounds, options.repeats)
    judge(found)
    save(options.json, {"model": options.model, "crews": found})


if __name__ == "__main__":
    sys.exit(main())
