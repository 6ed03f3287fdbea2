"""What a split network costs beside the same network in one place: seconds a batch, and CPU of the dialogue.

    python scripts/bench/split_training.py --repeats 5 --batch 128 --json result.json

MNIST's columns in three, bottoms 100-100, a top 200-10 over concatenated lines, Adam. In each repeat all
rows take turns: plain torch in one process, mpifl in one process, and mpifl on four ranks, of which two host
a silo each and one the holder's. The CPU of the dialogue is that of all ranks less that of one process, over
batches and silos. What starting costs falls out: each training is run with few rounds and with more.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tomli_w
from common import ENVIRONMENT, MPIRUN, NEVER, images, save

SILOS, STEPS, FEW, MORE = 3, 100, 2, 17
"""Silos, batches a round, and the rounds of both trainings."""
BARE = Path(__file__).with_name("joined.py")
"""The same network in one place."""


def prepare(folder: Path, batch: int) -> str:
    """Write the shards, a job, and the same numbers in one file; return what they are."""
    x, y, what = images(20_000)
    np_file, flat = folder / "own.npz", x.reshape(len(x), -1).astype(np.float32) / 255
    np.savez(np_file, x=flat, y=np.asarray(y, np.int64))
    cut = ["partition", "npz", "--data", str(np_file), "--scheme", "vertical", "--silos", str(SILOS)]
    cut += ["--columns", "contiguous", "--out", str(folder / "shards")]
    subprocess.run(
        [sys.executable, "-m", "data_prep", *cut], check=True, env=ENVIRONMENT, capture_output=True
    )
    job = {
        "name": "split",
        "shards": str(folder / "shards"),
        "rounds": MORE,
        "device": "cpu",
        "model": {"name": "mlp", "hidden": [100]},
        "algorithm": {"name": "splitnn"},
        "split": {"cut_width": 100, "top": {"name": "mlp", "hidden": [200]}},
        "local": {"optimizer": "adam", "lr": 0.001, "batch_size": batch, "steps": STEPS},
        "evaluate": {"every": NEVER},
        "checkpoint": {"every": NEVER},
    }
    (folder / "job.toml").write_text(tomli_w.dumps(job))
    return what


def bare(folder: Path, batch: int) -> float:
    """Return the least seconds a batch of plain torch."""
    command = [sys.executable, str(BARE), str(folder / "own.npz"), str(batch), str(STEPS), str(MORE)]
    return float(min(json.loads(ran(command).stdout)))


def ran(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command; end with what it said if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(command)}:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return done


def mpifl(folder: Path, ranks: int, rounds: int) -> tuple[float, float]:
    """Train; return the least seconds a batch, and the CPU seconds of all processes."""
    with tempfile.TemporaryDirectory() as out:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        program = [sys.executable, "-m", "mpifl", "train", str(folder / "job.toml"), "--out", f"{out}/run"]
        command = [*([*MPIRUN, "-n", str(ranks)] if ranks > 1 else []), *program, "--set", f"rounds={rounds}"]
        ran(command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = Path(out, "run", "metrics.jsonl").read_text().splitlines()
    seconds = [json.loads(line)["seconds"] / STEPS for line in lines][1:]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return min(seconds), used


def measure(folder: Path, batch: int, repeats: int) -> dict[str, list[float]]:
    """Have all rows take turns; return their milliseconds by repeat."""
    taken: dict[str, list[float]] = {"plain torch": [], "one process": [], "four ranks": [], "dialogue": []}
    for repeat in range(repeats):
        began = time.perf_counter()
        taken["plain torch"].append(1e3 * bare(folder, batch))
        cpu = {}
        for name, ranks in (("one process", 1), ("four ranks", 1 + SILOS)):
            _, few = mpifl(folder, ranks, FEW)
            least, more = mpifl(folder, ranks, MORE)
            taken[name].append(1e3 * least)
            cpu[name] = more - few
        apart = cpu["four ranks"] - cpu["one process"]
        taken["dialogue"].append(1e3 * apart / (MORE - FEW) / STEPS / SILOS)
        print(f"repeat {repeat + 1}: {time.perf_counter() - began:.0f} s", flush=True)
    return taken


def main() -> None:
    """Time all rows, and print milliseconds a batch and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="one repeat")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        what = prepare(Path(scratch), options.batch)
        taken = measure(Path(scratch), options.batch, 1 if options.quick else options.repeats)
    print(f"{what}, batches of {options.batch}: milliseconds a batch, the least of each repeat")
    for name in ("plain torch", "one process", "four ranks"):
        ratios = [a / b for a, b in zip(taken[name], taken["plain torch"], strict=True)]
        print(f"{name:<12} {min(taken[name]):7.2f}   {min(ratios):.2f} to {max(ratios):.2f} of plain torch")
    print(
        f"dialogue: {min(taken['dialogue']):.3f} to {max(taken['dialogue']):.3f} ms of CPU a batch and silo"
    )
    save(options.json, taken)


if __name__ == "__main__":
    main()
