"""What batched steps of several silos cost beside single ones, in one process on one thread.

Each repeat trains all silos one after another, and in chunks of every size, in an order that turns from
repeat to repeat. The processor's time is counted, and ratios are taken within a repeat. A silo's time holds
all of its training: batches drawn from its shard, the steps, the delta. How far the parameters of both ways
lie apart in the end stands beside it, as a share of the way that they have gone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import torch
from common import CLASSES, PIXELS, images, save
from torch import Tensor

from mpifl.common.machine import tuning
from mpifl.data.batches.batches import Batches
from mpifl.data.shards.shards import Features, Split
from mpifl.learning import models
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.training import Loss, Training
from mpifl.wings.fast import quickly as train
from mpifl.wings.fast.stacked_training import Ended, train_together

WARMUP, BATCH, LR = 1, 10, 0.01
CHUNKS = (4, 16, 64)
TABLE = Features(shape=(100,), dtype="float32")
CASES = {
    "logistic, table": ("logreg", TABLE, {}, 64, 200),
    "logistic, MNIST": ("logreg", PIXELS, {}, 64, 100),
    "perceptron of 32, table": ("mlp", TABLE, {"hidden": [32]}, 64, 100),
    "2NN, MNIST": ("2nn", PIXELS, {}, 64, 50),
    "CNN, MNIST": ("cnn", PIXELS, {}, 16, 20),
}
"""Model, its input, its arguments, silos, examples of each."""
Pass = Callable[[], list[Tensor]]


class Case:
    """Some silos with a model."""

    def __init__(
        self, name: str, features: Features, arguments: dict[str, Any], silos: int, examples: int
    ) -> None:
        self.model = FlatModel(models.build(name, arguments, features, CLASSES, 0))
        self.silos, self.steps = silos, silos * examples // BATCH
        self._start = self.model.trained.clone()
        self._local = LocalTraining(lr=LR, batch_size=BATCH)
        x, y = _examples(features, silos * examples)
        parts = zip(np.array_split(x, silos), np.array_split(y, silos), strict=True)
        self._shards = [Batches(Split(*part), features, torch.device("cpu")) for part in parts]

    def _asked(self, silo: int) -> Training:
        task = CLASSIFICATION
        loss = Loss(task.objective, of_outputs=task.mean_loss, weighted=task.weighted_objective)
        order = torch.Generator().manual_seed(silo)
        return Training(self.model, self._shards[silo], self._start, self._local, loss, order)

    def singly(self) -> list[Tensor]:
        """Train the silos one after another; return their deltas."""
        return [train(self._asked(silo)).delta for silo in range(self.silos)]

    def together(self, chunk: int) -> list[Tensor]:
        """Train them in chunks of so many."""
        deltas = []
        for begin in range(0, self.silos, chunk):
            asked = [self._asked(silo) for silo in range(begin, min(begin + chunk, self.silos))]
            outcomes = train_together(asked, chunk)
            assert all(isinstance(outcome, Ended) for outcome in outcomes)
            deltas += [outcome(one).delta for one, outcome in zip(asked, outcomes, strict=True)]
        return deltas


def _examples(features: Features, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images, or numbers of the shape of a table."""
    if features is PIXELS:
        return images(count)[:2]
    draw = np.random.default_rng(0)
    x = draw.normal(size=(count, *features.shape)).astype(np.float32)
    return x, draw.integers(0, CLASSES, count)


def measure(case: Case, chunks: Sequence[int], repeats: int) -> dict[str, list[float]]:
    """Return the microseconds of a silo's step, repeat by repeat: one after another, and by chunks."""
    ways: dict[str, Pass] = {"singly": case.singly}
    ways |= {str(chunk): (lambda chunk=chunk: case.together(chunk)) for chunk in chunks}
    order, taken = list(ways), {name: [] for name in ways}
    for nth in range(WARMUP + repeats):
        for name in order[nth % len(order) :] + order[: nth % len(order)]:
            began = time.process_time()
            ways[name]()
            taken[name].append(1e6 * (time.process_time() - began) / case.steps)
    return {name: values[WARMUP:] for name, values in taken.items()}


def apart(case: Case, chunk: int) -> float:
    """Return how far both ways end apart, at the silo where it is most, of the way gone."""
    pairs = zip(case.singly(), case.together(chunk), strict=True)
    return max(float((one - other).norm() / one.norm()) for one, other in pairs)


def show(name: str, case: Case, taken: dict[str, list[float]]) -> dict[str, Any]:
    """Print and return a case's ratios: the median, and quartiles."""
    parameters, alone = len(case.model.trained), median(taken["singly"])
    print(f"{name}: {parameters:,} parameters, {alone:.0f} us a single step")
    rows: dict[str, Any] = {"parameters": parameters, "us": alone}
    for chunk in [way for way in taken if way != "singly"]:
        ratios = [ours / one for ours, one in zip(taken[chunk], taken["singly"], strict=True)]
        low, ratio, high = quantiles(ratios, n=4)
        gap = apart(case, int(chunk))
        rows[chunk] = {"ratio": ratio, "low": low, "high": high, "apart": gap}
        print(f"  chunks of {chunk:>3}: {ratio:.2f} ({low:.2f} - {high:.2f}), {gap:.1e} apart", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=9, help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="two repeats of the first case")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    tuning.keep_memory()  # as `mpifl train` does
    torch.set_num_threads(1)
    names = list(CASES)[:1] if options.quick else list(CASES)
    found = {}
    for name in names:
        case = Case(*CASES[name])
        chunks = [chunk for chunk in CHUNKS if chunk <= case.silos]
        taken = measure(case, chunks, 2 if options.quick else options.repeats)
        found[name] = {**show(name, case, taken), "taken": taken}
    save(options.json, found)


if __name__ == "__main__":
    main()
