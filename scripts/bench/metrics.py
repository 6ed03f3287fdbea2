"""What metrics cost in an evaluation: scoring McMahan's CNN on images with them, beside accuracy alone.

One process, one thread; the processor's time is counted, in turns, so that others on the machine matter
little.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import CLASSES, PIXELS, advise, images, middle, save

from mpifl.data.batches.batches import Batches
from mpifl.data.shards.shards import Split
from mpifl.learning.models.image_models import cnn
from mpifl.learning.tasks import TASKS, Task, TaskFacts
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.scoring import evaluate

SIDES = {
    "accuracy": ["accuracy"],
    "accuracy again": ["accuracy"],
    "f1": ["accuracy", "f1"],
    "auroc": ["accuracy", "auroc"],
    "average_precision": ["accuracy", "average_precision"],
    "calibration_error": ["accuracy", "calibration_error"],
    "all of them": ["accuracy", "f1", "auroc", "average_precision", "calibration_error"],
}
TARGET = 1.02
WARMUP = 1


def task_of(metrics: list[str]) -> Task:
    """Return a classification with these metrics."""
    task: Any = TASKS["classification"](metrics=metrics)
    task._facts = TaskFacts(classes=CLASSES)
    return task


def measure(examples: int, repeats: int) -> dict[str, Any]:
    """Return the milliseconds of an evaluation of each side, repeat by repeat."""
    torch.set_num_threads(1)
    x, y, data = images(examples)
    x, y = x.copy(), y.copy()  # MNIST is mapped, and torch warns of what cannot be written
    batches = Batches(Split(x, y), PIXELS, torch.device("cpu"))
    model = FlatModel(cnn(PIXELS.shape, CLASSES))
    w, tasks = model.trained.clone(), {side: task_of(names) for side, names in SIDES.items()}
    taken: dict[str, list[float]] = {side: [] for side in SIDES}
    for nth in range(WARMUP + repeats):
        for side in reversed(SIDES) if nth % 2 else SIDES:
            began = time.process_time()
            evaluate(model, w, batches, tasks[side])
            taken[side].append(1e3 * (time.process_time() - began))
    return {"data": data, "examples": examples, "ms": {side: ms[WARMUP:] for side, ms in taken.items()}}


def judge(result: dict[str, Any]) -> None:
    """Put the ratios to accuracy alone into the result, and print them."""
    print(f"McMahan's CNN on {result['examples']} images of {result['data']}, the processor's time")
    print(f"{'':20}{'ms':>9}{'ratio':>8}{'from - to':>16}")
    result["ratios"] = {}
    plain = result["ms"]["accuracy"]
    for side, own in result["ms"].items():
        ratios = [ours / alone for ours, alone in zip(own, plain, strict=True)]
        ratio, spread = middle(ratios)
        result["ratios"][side] = {"ratio": ratio, "spread": spread, "of_best": min(own) / min(plain)}
        extremes = f"{min(ratios):.3f} - {max(ratios):.3f}"
        print(f"{side:20}{median(own):9.1f}{ratio:8.3f}{extremes:>16}")
    advise(max(own["spread"] for own in result["ratios"].values()))
    met = "met" if result["ratios"]["all of them"]["ratio"] <= TARGET else "missed"
    print(f"target {TARGET:.2f} {met}", flush=True)


def main() -> None:
    """Measure, judge, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=2000, help="images (%(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="evaluations of each side (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="seconds, to see that it works")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    small = (1000, 1) if options.quick else (options.examples, options.repeats)
    result = measure(*small)
    judge(result)
    save(options.json, result)


if __name__ == "__main__":
    main()
