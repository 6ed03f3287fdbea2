"""What the fake accelerator is asked for while a silo trains."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace
from typing import Any
from unittest import mock

import fake
import numpy as np
import torch
from torch import nn

from mpifl.data.batches import Batches, batches as batches_module
from mpifl.data.features import Features
from mpifl.data.shards.shards import Split
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import LocalRun, LocalTraining, Loss, Training, train
from mpifl.sums import kernels
from mpifl.wings.fast import train_together

EXAMPLES = 48
DEVICE = torch.device("fake", 0)
MODEL = FlatModel(
    nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), DEVICE
)
WAITS = ("item", "D2H", "H2D", "sync by", "CPU index")
WAYS = {
    "plain": {},
    "momentum": {"momentum": 0.9, "clip_norm": 1.0},
    "adamw": {"optimizer": "adamw", "schedule": "cosine", "warmup": 1, "schedule_rounds": 1},
    "accumulated": {"accumulate_batches": 2},
    "batched": {},
}


SILOS, CHUNK = 3, 4


def asked(silo: int, size: int, **settings: Any) -> Training:
    """Return a training of an epoch in batches of a size, on the fake accelerator."""
    draw = np.random.default_rng(silo)
    split = Split(draw.normal(size=(EXAMPLES, 4)).astype(np.float32), draw.integers(0, 3, EXAMPLES))
    batches = Batches(split, Features(shape=(4,), dtype="float32"), DEVICE)
    local = LocalTraining(lr=0.1, batch_size=size, **settings)
    start, task = MODEL.trained.clone(), CLASSIFICATION
    loss = Loss(task.objective, weighted=task.weighted_objective)
    return Training(MODEL, batches, start, local, loss, torch.Generator().manual_seed(silo))


def batched(size: int, silos: int, **settings: Any) -> list[LocalRun]:
    """Train silos together."""
    wanted = [asked(silo, size, **settings) for silo in range(silos)]
    found = train_together(wanted, CHUNK)
    return [outcome(one) for one, outcome in zip(wanted, found, strict=True)]


def waits(way: str, size: int) -> dict[str, int]:
    """Return how often an epoch in batches of a size waits for the device or copies, by what."""
    if way == "batched":
        batched(size, SILOS)  # the graph is made
    fake.reset()
    runs = batched(size, SILOS) if way == "batched" else [train(asked(0, size, **WAYS[way]))]
    counts = {what: n for what, n in fake.told().items() if what.startswith(WAITS) and "bytes" not in what}
    return {**counts, "steps": runs[0].steps}


def operations(way: str) -> float:
    """Return how many operations a further step takes: of one silo plainly, or of a whole chunk."""
    counts = []
    for epochs in (1, 1, 3):  # the first makes the graph
        fake.reset()
        if way == "batched":
            batched(4, CHUNK, epochs=epochs)
        else:
            train(asked(0, 4, epochs=epochs))
        counts.append(sum(n for what, n in fake.told().items() if what.startswith(("aten::", "copy_"))))
    return (counts[2] - counts[1]) / (2 * EXAMPLES / 4)


def travels() -> list[int]:
    """Return the bytes that go to the device in each of two trainings of the same examples."""
    one, found = asked(0, 12), []
    for _ in range(2):
        fake.reset()
        train(one)
        found.append(fake.told()["H2D bytes"])
    return found


def fetched() -> dict[str, Any]:
    """Return which threads gather the blocks of examples that do not stay on the device, and whether batches
    are those of the CPU."""
    one, threads = asked(0, 4).data, set()
    there, here = copy.copy(one), one.on_cpu()
    gather = there.take

    def take(indices: torch.Tensor) -> Any:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        return gather(indices)

    there.take = take  # type: ignore[method-assign]
    with mock.patch.object(batches_module, "resident_on", return_value=None), small_blocks():
        pairs = list(zip(drawn(there), drawn(here), strict=True))
    same = all(torch.equal(a.cpu(), b) for pair in pairs for a, b in zip(*pair, strict=True))
    return {"threads": sorted(threads), "same": same, "batches": len(pairs)}


def small_blocks() -> Any:
    """Have a block be of two batches."""
    return mock.patch.object(batches_module, "BLOCK_BYTES", 8 * 4 * 4)


def drawn(batches: Batches) -> Any:
    return batches.shuffled(4, torch.Generator().manual_seed(1))


def finishes(deadline: float | None) -> tuple[int, int]:
    """Return how many steps a training takes, and how often it waits until the device has done them."""
    one = asked(0, 12, deadline=deadline)
    fake.reset()
    return train(one).steps, fake.told().get("synchronize", 0)


def rounding() -> list[bool]:
    """Return whether products of matrices and convolutions on CUDA would round to TF32 now."""
    return [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]


def rounds(precision: str) -> list[list[bool]]:
    """Return `rounding` in a training, and after it."""
    seen = []

    def objective(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(rounding())
        return nn.functional.cross_entropy(module(x), y)

    train(replace(asked(0, EXAMPLES, precision=precision), loss=Loss(objective)))
    return [*seen, rounding()]


def folds(length: int) -> int:
    """Return how many operations it takes to add two vectors of a length up, as sums of silos are."""
    vector = torch.ones(length).to("fake:0")
    total = torch.empty(length, dtype=torch.float64).to("fake:0")
    fake.reset()
    for fresh in (True, False):
        kernels.add(total, vector, 0.5, 1.5 * 2.0**20, fresh=fresh)
    assert total.cpu().eq(1).all()
    return sum(n for what, n in fake.told().items() if what.startswith(("aten::", "copy_")))
