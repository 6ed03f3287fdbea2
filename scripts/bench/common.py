"""What the benchmarks share: shards and jobs in a scratch folder,
ranks with a time limit, medians with a spread."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np
import tomli_w

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # measure the tree that this file stands in, whatever is installed

from data_prep.sources.source_registry import SOURCES  # noqa: E402
from mpifl.common.errors import InputError  # noqa: E402
from mpifl.data.shards.shards import Features, FederationSpec  # noqa: E402
from scripts.write_shard import write_shard  # noqa: E402

MPIRUN = shlex.split(os.environ.get("MPIFL_MPIRUN", "mpirun"))
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
PIXELS = Features(shape=(1, 28, 28), dtype="uint8", scale=1 / 255)
CLASSES = 10
SLICE = 0.05
"""Seconds between two looks at the ranks."""
NOISY = 0.15
"""A spread of ratios above this calls for another run."""
NEVER = 10**9
"""As `every` of evaluation and checkpoints: only at the end."""


def images(examples: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return that many MNIST training images, labels, and what they are;
    noise of their shape where MNIST is not."""
    try:
        mnist = SOURCES["mnist"](None, 0)
        return mnist.x[:examples], mnist.y[:examples], "MNIST"
    except InputError as error:
        noise = np.random.default_rng(0)
        x = noise.integers(0, 256, (examples, *PIXELS.shape), dtype=np.uint8)
        return x, noise.integers(0, CLASSES, examples), f"random pixels, for want of MNIST ({error})"


def write_silos(
    folder: Path,
    x: np.ndarray,
    y: np.ndarray,
    silos: int,
    test: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Deal examples out evenly, in their order, to a shard folder of `silos` silos; `test` is the
    server's."""
    folder.mkdir()
    parts = zip(np.array_split(x, silos), np.array_split(y, silos), strict=True)
    kind: dict[str, Any] = {"features": PIXELS, "classes": CLASSES}
    entries = [
        write_shard(folder / f"silo_{k:04d}.h5", {"train": part}, silo=k, name=str(k), **kind)
        for k, part in enumerate(parts)
    ]
    held = test and write_shard(folder / "test.h5", {"test": test}, silo=None, name="test", **kind)
    origin: dict[str, Any] = {"name": "iid", "source": "benchmark"}
    spec = FederationSpec(
        name="benchmark",
        features=PIXELS,
        classes=CLASSES,
        seed=0,
        scheme=origin,
        source=origin,
        silos=entries,
        test=held,
    )
    spec.write(folder)


def write_job(
    path: Path, shards: Path, rounds: int, model: dict[str, Any], fraction: float = 1.0, **local: Any
) -> None:
    """Write a FedAvg job that only trains: nothing is scored, and state reaches the disk at the end alone."""
    every = {"evaluate": {"every": NEVER, "silos": False}, "checkpoint": {"every": NEVER}}
    tables = {
        "model": model,
        "local": {"lr": 0.1, "batch_size": 10, **local},
        "cohort": {"fraction": fraction},
        **every,
    }
    path.write_text(tomli_w.dumps({"name": "benchmark", "shards": str(shards), "rounds": rounds, **tables}))


def train(
    job: Path,
    run: Path,
    ranks: int,
    limit: float,
    look: Callable[[], None] = lambda: None,
    settings: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> None:
    """Train a job on that many ranks, calling `look` now and then; end them after `limit` seconds.

    Settings are those of `--set`, such as `local.lr=0.05`; those with a name of capitals are put in the
    environment. Flags are the launcher's.
    """
    sets, variables = told_apart(settings)
    program = ["-m", "mpifl", "train", str(job), "--out", str(run), *sets]
    start_ranks(program, ranks, limit, run.with_suffix(".log"), look, variables, flags)


def told_apart(settings: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments for settings of the job,
    and the variables among them, whose names are capitals."""
    named = [setting.partition("=")[::2] for setting in settings]
    sets = [part for name, value in named if not name.isupper() for part in ("--set", f"{name}={value}")]
    return sets, {name: value for name, value in named if name.isupper()}


def start_ranks(
    program: Sequence[str],
    ranks: int,
    limit: float,
    log: Path,
    look: Callable[[], None] = lambda: None,
    variables: Mapping[str, str] = MappingProxyType({}),
    flags: Sequence[str] = (),
) -> None:
    """Run `python PROGRAM` on that many ranks, calling `look` now and then;
    end them after `limit` seconds."""
    command = [*MPIRUN, *flags, "-n", str(ranks), sys.executable, *program]
    with log.open("wb") as out:
        launched = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**ENVIRONMENT, **variables}, cwd=log.parent
        )
    try:
        for _ in range(int(limit / SLICE)):
            look()
            try:
                launched.wait(SLICE)
                break
            except subprocess.TimeoutExpired:
                continue
    finally:
        stopped = end(launched)
    if stopped or launched.returncode:
        what = f"took longer than {limit:.0f} s" if stopped else f"ended with {launched.returncode}"
        raise SystemExit(f"error: {' '.join(command)} {what}:\n{log.read_text()[-2000:]}")


def end(process: subprocess.Popen[bytes]) -> bool:
    """Make sure that a process is gone, by SIGTERM (which mpirun hands on to its ranks) or else SIGKILL."""
    if process.poll() is not None:
        return False
    for stop in (process.terminate, process.terminate, process.kill):
        stop()
        try:
            process.wait(10)
            break
        except subprocess.TimeoutExpired:
            continue
    return True


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's `metrics.jsonl`."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def seconds_of_rounds(run: Path, warmup: int) -> list[float]:
    """Return the seconds between the end of one round and of the next,
    in the order of the rounds after the warm-up."""
    times = [record["time"] for record in metrics(run)]
    return [after - before for before, after in itertools.pairwise(times)][warmup:]


def middle(values: list[float]) -> tuple[float, float]:
    """Return the median, and the spread: (largest - smallest) / median."""
    return median(values), (max(values) - min(values)) / median(values)


def save(path: Path | None, result: dict[str, Any]) -> None:
    """Write a result as JSON, if asked."""
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"written to {path}")


def advise(spread: float) -> None:
    """Say so where the figures spread too far to be relied on."""
    if spread > NOISY:
        print(f"noise: the ratios spread by {spread:.0%}, above {NOISY:.0%}; repeat on a quiet machine")
