"""What a step of DP-SGD costs beside a plain one, in one process on one thread.

Each repeat takes some steps of every kind on the same model and the same examples, in an order that turns
from repeat to repeat. The processor's time is counted, and ratios are taken within a repeat. Four kinds stand
beside the plain step. The first is the clipped sum of one batch by the layers' formulas, and nothing else.
The second is a DP-SGD step without its noise, with batches that are drawn and filled up. The third has noise,
too.
The last is the clipped sum by a pass for each example.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from common import CLASSES, PIXELS, images, save

from mpifl.common.machine import tuning
from mpifl.data.batches.batches import Batches
from mpifl.data.shards.shards import Split
from mpifl.learning import models
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.training import Loss, Training
from mpifl.wings.dpsgd.clipped import ByFormula, ByLoop
from mpifl.wings.dpsgd.dpsgd import DPSGD
from mpifl.wings.fast import quickly as train

EXAMPLES, WARMUP = 3000, 2
CASES = (("2nn", 10, 40), ("2nn", 64, 12), ("cnn", 10, 6), ("cnn", 64, 2))
"""Model, batch size, steps of a pass."""
TARGETS = {"clipped sum": 2.0, "drawn, no noise": 2.0, "dp-sgd": 2.5}
"""What each may cost, relative to the plain step."""
NOISE_FROM = 64
"""Noise is a number for each parameter, whatever the batch: its target is for batches of so many or more."""
CLIP, NOISE, LR = 1.0, 1.0, 0.01
Pass = Callable[[], object]


class Quiet(DPSGD):
    """DP-SGD whose noise is left out, to see what that costs."""

    def noised(self, model: FlatModel, objective: Any, batch: Any) -> list[torch.Tensor]:
        return self.clipped_mean(model, objective, batch)


def passes(name: str, size: int, steps: int, examples: Batches, few: Batches) -> dict[str, Pass]:
    """Return what is measured of a model: plain steps over a few examples, the others of all.

    A plain pass gathers its batches ahead, and is to gather none that it does not take.
    """
    model = FlatModel(models.build(name, {}, PIXELS, CLASSES, 0))
    start, objective = model.trained.clone(), CLASSIFICATION.objective
    loss = Loss(objective, of_outputs=CLASSIFICATION.mean_loss)
    batch = examples.take(torch.arange(size))
    local = LocalTraining(lr=LR, batch_size=size, steps=steps)

    def plain() -> None:
        train(Training(model, few, start, local, loss, torch.Generator().manual_seed(0)))

    def private(kind: type[DPSGD]) -> Pass:
        def once() -> None:
            way = kind(bytes(32), "bench", CLIP, NOISE, size / len(examples), steps, size)
            train(Training(model, examples, start, local, loss, torch.Generator(), method=way))

        return once

    def summed(by: ByFormula | ByLoop, times: int) -> Pass:
        def once() -> None:
            for _ in range(times):
                sums, _ = by(batch, size, CLIP)
                model.descend(sums, LR / size)

        return once

    return {
        "plain": plain,
        "clipped sum": summed(ByFormula(model, objective, loss.of_outputs), steps),
        "drawn, no noise": private(Quiet),
        "dp-sgd": private(DPSGD),
        "loop": summed(ByLoop(model, objective), steps),
    }


def measure(named: dict[str, Pass], steps: int, repeats: int) -> dict[str, list[float]]:
    """Return the milliseconds a step of each, repeat by repeat."""
    order, taken = list(named), {name: [] for name in named}
    for nth in range(WARMUP + repeats):
        turned = order[nth % len(order) :] + order[: nth % len(order)]
        for name in turned:
            began = time.thread_time()
            named[name]()
            taken[name].append(1e3 * (time.thread_time() - began) / steps)
    return {name: values[WARMUP:] for name, values in taken.items()}


def verdict(name: str, size: int, ratio: float) -> str:
    """Return whether a ratio meets its target; "" if it has none."""
    if name not in TARGETS or (name == "dp-sgd" and size < NOISE_FROM):
        return ""
    return " met" if ratio <= TARGETS[name] else " missed"


def show(label: str, size: int, taken: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Print and return each one's median step and its ratio to the plain one's."""
    print(f"{label:22}{'ms a step':>11}{'ratio':>8}{'quartiles':>16}")
    rows = {}
    for name, values in taken.items():
        ratios = [ours / theirs for ours, theirs in zip(values, taken["plain"], strict=True)]
        low, ratio, high = quantiles(ratios, n=4)
        rows[name] = {"ms": median(values), "ratio": ratio, "low": low, "high": high}
        judged = verdict(name, size, ratio)
        print(f"{name:22}{median(values):11.2f}{ratio:8.2f}{low:8.2f}–{high:.2f}{judged}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15, help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="two repeats: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.quick:
        options.repeats = 2
    if options.repeats < 2:
        parser.error("--repeats must be at least 2")
    tuning.keep_memory()  # as `mpifl train` does
    torch.set_num_threads(1)
    x, y, data = images(EXAMPLES)

    def first(count: int) -> Batches:
        return Batches(Split(x[:count], y[:count]), PIXELS, torch.device("cpu"))

    targets = ", ".join(f"{name} {most:.2f}" for name, most in TARGETS.items())
    print(f"{data}, {options.repeats} repeats; targets: {targets} from B = {NOISE_FROM} on")
    found = {}
    for name, size, steps in CASES:
        label = f"{name}, B = {size}"
        named = passes(name, size, steps, first(EXAMPLES), first(steps * size))
        found[label] = show(label, size, measure(named, steps, options.repeats))
    save(options.json, {"data": data, "rows": found})


if __name__ == "__main__":
    main()
