"""What a local step of each algorithm costs beside FedAvg's: 2NN on MNIST, B = 10, in one process on one
thread.

A repeat lets every algorithm do its silo's half of a round once, on the same 600 images: 60 steps, and what
stands around them (the model's arrival, the delta, what the silo keeps). The processor's time is counted, so
that others on the machine matter little; ratios are taken within a repeat, in an order that turns from repeat
to repeat.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import bare
import torch
from common import CLASSES, PIXELS, images, save, write_silos
from torch import nn

from mpifl.algorithms.algorithm_registry import ALGORITHMS
from mpifl.data.shards.shards import Shard, open_shard, read_federation
from mpifl.learning import models
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.silo import Silo
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.wings.fast import quickly

EXAMPLES, WARMUP = 600, 3
STEPS = EXAMPLES // bare.BATCH
REFERENCE = "fedavg"
TARGET = 1.10
TARGETED = ("fedprox", "scaffold", "fednova")
"""What must cost at most TARGET times FedAvg's step."""
Pass = Callable[[], object]


def client_method(name: str, shard: Shard, w: torch.Tensor, **settings: Any) -> Pass:
    """Return a function that does an algorithm's part at a silo, in the state that it has after a round."""
    algorithm: Any = ALGORITHMS[name](local=LocalTraining(lr=bare.LR, batch_size=bare.BATCH, **settings))
    model = FlatModel(models.build("2nn", {}, PIXELS, CLASSES, 0), recalls=True)
    state: dict[str, Any] = {}
    silo = Silo(0, shard, PIXELS, [model], state=state, trains=quickly)
    messages: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "fedprox": (getattr(algorithm, "train_near", None), {"mu": 0.01}),
        "scaffold": (getattr(algorithm, "train_corrected", None), {"c": torch.full_like(w, 1e-4)}),
        "fsvrg": (getattr(algorithm, "train_reduced", None), {"full": torch.full_like(w, 1e-4)}),
    }
    work, message = messages.get(name, (algorithm.train, {}))

    def once() -> None:
        work(silo, w=w, **message)
        state.update(silo.kept)

    return once


def plain_torch(shard: Shard) -> Pass:
    """Return a function that trains an epoch with torch.optim.SGD and nothing else."""
    module = bare.two_nn()
    optimizer = torch.optim.SGD(module.parameters(), lr=bare.LR)
    x = torch.tensor(shard.splits["train"].x, dtype=torch.float32).div_(255)
    y = torch.tensor(shard.splits["train"].y)

    def once() -> None:
        order = torch.randperm(len(y))
        for batch, labels in zip(x[order].split(bare.BATCH), y[order].split(bare.BATCH), strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(batch), labels).backward()
            optimizer.step()

    return once


def passes(folder: Path) -> tuple[dict[str, Pass], str]:
    """Return what is measured, and on which data."""
    x, y, data = images(EXAMPLES)
    write_silos(folder / "shards", x, y, 1)
    spec = read_federation(folder / "shards")
    shard = open_shard(folder / "shards", spec.silos[0], spec)
    w = FlatModel(models.build("2nn", {}, PIXELS, CLASSES, 0)).trained.clone()
    named = {name: client_method(name, shard, w) for name in (REFERENCE, *TARGETED)}
    named["fedavg, momentum 0.9"] = client_method("fedavg", shard, w, momentum=0.9)
    named["fedavg, compiled"] = client_method("fedavg", shard, w, compile=True)
    named["scaffold, compiled"] = client_method("scaffold", shard, w, compile=True)
    named["moon"] = client_method("moon", shard, w)
    named["moon, compiled"] = client_method("moon", shard, w, compile=True)
    named["fsvrg"] = client_method("fsvrg", shard, w)
    named["torch.optim.SGD"] = plain_torch(shard)
    return named, data


def measure(named: dict[str, Pass], repeats: int) -> dict[str, list[float]]:
    """Return the microseconds a step of each, repeat by repeat."""
    order, taken = list(named), {name: [] for name in named}
    for nth in range(WARMUP + repeats):
        turned = order[nth % len(order) :] + order[: nth % len(order)]
        for name in turned:
            began = time.process_time()
            named[name]()
            taken[name].append(1e6 * (time.process_time() - began) / STEPS)
    return {name: values[WARMUP:] for name, values in taken.items()}


def show(taken: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Print and return each one's median step and its ratio to FedAvg's:
    median, quartiles, and of the best repeats."""
    print(f"{'':22}{'us a step':>11}{'ratio':>8}{'quartiles':>16}{'of best':>9}")
    rows = {}
    for name, values in taken.items():
        ratios = [ours / theirs for ours, theirs in zip(values, taken[REFERENCE], strict=True)]
        low, ratio, high = quantiles(ratios, n=4)
        best = min(values) / min(taken[REFERENCE])
        rows[name] = {"us": median(values), "ratio": ratio, "low": low, "high": high, "ratio_of_best": best}
        verdict = (" missed" if ratio > TARGET else " met") if name in TARGETED else ""
        print(f"{name:22}{median(values):11.1f}{ratio:8.3f}{low:8.3f}–{high:.3f}{best:11.3f}{verdict}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=100, help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="two repeats: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.quick:
        options.repeats = 2
    if options.repeats < 2:
        parser.error("--repeats must be at least 2")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        named, data = passes(Path(scratch))
        taken = measure(named, options.repeats)
    print(
        f"2NN on {data}, B = {bare.BATCH}, {STEPS} steps a pass, "
        f"{options.repeats} repeats; target {TARGET:.2f}"
    )
    save(options.json, {"data": data, "rows": show(taken), "us": taken})


if __name__ == "__main__":
    main()
