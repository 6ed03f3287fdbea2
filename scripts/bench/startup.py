"""How long a command takes to say what it can do, and a training from its start to its first round.

A training's ranks are up when each has imported all and joined the world; what lies between that and the
first round (agreeing on the job, building models, verifying the shards, the first checkpointed files) is
mpifl's own. 100 silos of 600 MNIST images, 2NN, all of whose shards are verified by their sha256. Each start
is made twice, one after the other: as it is, and with imports that the garbage collector looks through
("plain imports").
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ENVIRONMENT, MPIRUN, images, metrics, middle, save, write_job, write_silos

SILOS, EXAMPLES = 100, 600
LIMIT = 90.0
COMMANDS = {
    "mpifl --version": ["-m", "mpifl", "--version"],
    "mpifl --help": ["-m", "mpifl", "--help"],
    "mpifl train --help": ["-m", "mpifl", "train", "--help"],
    "mpifl keys": ["-m", "mpifl", "keys"],
    "mpifl list metrics": ["-m", "mpifl", "list", "metrics"],
    "data_prep --help": ["-m", "data_prep", "--help"],
}
HEAVY = ("torch._dynamo", "torch._inductor", "matplotlib", "pandas", "sympy", "torch.distributed.tensor")
"""What costs much to import and a training does not need."""
PLAIN = ", plain imports"
RANK = """
import contextlib, json, os, sys, time
began = time.time()
from mpifl.common.machine import imports
if "PLAIN" in os.environ:
    imports.gc_frozen = contextlib.nullcontext
with imports.gc_frozen():
    import mpifl.training.loop
imported = time.time()
from mpifl.wire.launching import world
rank, up = world().rank, time.time()
from mpifl.cli import main
try:
    main()
finally:
    heavy = [name for name in json.loads(os.environ["HEAVY"]) if name in sys.modules]
    with open(os.path.join(os.environ["NOTES"], f"{rank}.json"), "w") as file:
        json.dump({"began": began, "imported": imported, "up": up, "heavy": heavy}, file)
"""


def seconds_of_command(arguments: list[str], repeats: int) -> list[float]:
    """Return the wall seconds of `python ARGUMENTS`, after a run that warms the disk's cache."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments],
            check=True,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            timeout=LIMIT,
        )
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


def start(folder: Path, ranks: int, nth: int, plain: bool = False) -> dict[str, Any]:
    """Train one round on that many ranks; return how long each part of the start took,
    and what heavy was imported."""
    name = f"{ranks}-{nth}{'-plain' if plain else ''}"
    run, notes = folder / f"run{name}", folder / f"notes{name}"
    notes.mkdir()
    launcher = [*MPIRUN, "-n", str(ranks)] if ranks > 1 else []
    command = [*launcher, sys.executable, "-c", RANK, "train", str(folder / "job.toml"), "--out", str(run)]
    environment = {
        **ENVIRONMENT,
        "NOTES": str(notes),
        "HEAVY": json.dumps(HEAVY),
        **({"PLAIN": "1"} if plain else {}),
    }
    began = time.time()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, timeout=LIMIT)
    ended = time.time()
    told = [json.loads(file.read_text()) for file in notes.iterdir()]
    first = metrics(run)[0]
    up, imported = max(note["up"] for note in told), max(note["imported"] for note in told)
    return {
        "launch": max(note["began"] for note in told) - began,
        "imports": max(note["imported"] - note["began"] for note in told),
        "mpi": up - imported,
        "to first round": first["time"] - first["seconds"] - up,
        "first round": first["seconds"],
        "from start to end": ended - began,
        "heavy": sorted({name for note in told for name in note["heavy"]}),
    }


def measure(ranks: list[int], repeats: int) -> dict[str, Any]:
    """Time the commands, and starts on each number of ranks."""
    commands = {name: seconds_of_command(arguments, repeats) for name, arguments in COMMANDS.items()}
    x, y, data = images(SILOS * EXAMPLES)
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        folder = Path(scratch)
        write_silos(folder / "shards", x, y, SILOS)
        write_job(folder / "job.toml", folder / "shards", 1, {"name": "2nn"})
        starts: dict[str, list[dict[str, Any]]] = {}
        for n in ranks:
            for nth in range(repeats):
                for kind, plain in (("", False), (PLAIN, True)):
                    starts.setdefault(f"{n}{kind}", []).append(start(folder, n, nth, plain))
    return {"data": data, "commands": commands, "starts": starts}


def show(result: dict[str, Any]) -> None:
    """Print the medians, with the slowest of each."""
    for name, seconds in result["commands"].items():
        print(f"{name:20} {middle(seconds)[0]:.2f} s, at most {max(seconds):.2f}")
    print(f"\n{SILOS} silos x {EXAMPLES} of {result['data']}, 2NN; seconds, medians")
    parts = ("launch", "imports", "mpi", "to first round", "first round", "from start to end")
    print(f"{'ranks':18}" + "".join(f"{part:>18}" for part in parts) + "   heavy imports")
    for ranks, starts in result["starts"].items():
        columns = "".join(f"{middle([begun[part] for begun in starts])[0]:18.2f}" for part in parts)
        print(f"{ranks:18}{columns}   {', '.join(starts[0]['heavy']) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 3], help="numbers of ranks (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if min(*options.ranks, options.repeats) < 1:
        parser.error("--ranks and --repeats must be at least 1")
    result = measure(options.ranks, options.repeats)
    show(result)
    save(options.json, result)


if __name__ == "__main__":
    main()
