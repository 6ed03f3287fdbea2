"""What the fake accelerator is asked for while a silo trains."""

from __future__ import annotations

import fake
import numpy as np
import torch
from torch import nn

from mpifl.aggregation import kernels
from mpifl.data import Batches
from mpifl.data.features import Features
from mpifl.data.shards import Split
from mpifl.silo import FlatModel, local
from mpifl.tasks import CLASSIFICATION

EXAMPLES = 48
WAITS = ("item", "D2H", "H2D", "sync by", "CPU index")
WAYS = {
    "plain": {},
    "momentum": {"momentum": 0.9, "clip_norm": 1.0},
    "adamw": {"optimizer": "adamw", "schedule": "cosine", "warmup": 1, "schedule_rounds": 1},
    "accumulated": {"accumulate": 2},
}


def _made() -> tuple[FlatModel, Batches]:
    device = torch.device("fake", 0)
    draw = np.random.default_rng(1)
    split = Split(draw.normal(size=(EXAMPLES, 4)).astype(np.float32), draw.integers(0, 3, EXAMPLES))
    batches = Batches(split, Features(shape=(4,), dtype="float32"), device)
    return FlatModel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), device), batches


def waits(way: str, size: int) -> dict[str, int]:
    """Return how often an epoch in batches of a size waits for the device or copies, by what."""
    model, batches = _made()
    settings = local.LocalTraining(lr=0.1, batch_size=size, **WAYS[way])
    start = model.trained.clone()
    fake.reset()
    run = local.train(model, batches, start, settings, torch.Generator(), CLASSIFICATION.objective)
    counts = {what: n for what, n in fake.told().items() if what.startswith(WAITS) and "bytes" not in what}
    return {**counts, "steps": run.steps}


def travels() -> list[int]:
    """Return the bytes that go to the device in each of two trainings of the same examples."""
    model, batches = _made()
    settings = local.LocalTraining(lr=0.1, batch_size=12)
    found = []
    for _ in range(2):
        fake.reset()
        start = model.trained.clone()
        local.train(model, batches, start, settings, torch.Generator(), CLASSIFICATION.objective)
        found.append(fake.told()["H2D bytes"])
    return found


def finishes(deadline: float | None) -> tuple[int, int]:
    """Return how many steps a training takes, and how often it waits until the device has done them."""
    model, batches = _made()
    settings = local.LocalTraining(lr=0.1, batch_size=12, deadline=deadline)
    fake.reset()
    start = model.trained.clone()
    run = local.train(model, batches, start, settings, torch.Generator(), CLASSIFICATION.objective)
    return run.steps, fake.told().get("synchronize", 0)


def rounding() -> list[bool]:
    """Return whether products of matrices and convolutions on CUDA would round to TF32 now."""
    return [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]


def rounds(precision: str) -> list[list[bool]]:
    """Return `rounding` in a training, and after it."""
    seen = []

    def objective(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(rounding())
        return nn.functional.cross_entropy(module(x), y)

    model, batches = _made()
    settings = local.LocalTraining(lr=0.1, batch_size=EXAMPLES, precision=precision)
    local.train(model, batches, model.trained.clone(), settings, torch.Generator(), objective)
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
