"""What Karimireddy et al. 2022 train where some workers lie: MNIST sorted by label, and their CNN."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from data_prep.sources import SOURCES
from mpifl import WeightRule
from mpifl.models.pooling import MaxPool2x2

HONEST, LIARS = 20, 5
MEAN, STD = 0.1307, 0.3081
BATCH = 32
"""Examples of a batch, at most."""


def examples(
    seed: int, data: Path | None = None, source: str = "mnist", liars: str = "learning"
) -> dict[str, np.ndarray]:
    """Return training examples sorted by label in runs of one length, one for each honest silo.

    A liar has as many, drawn from all. Labels that it turns round are then any. If liars are "idle", since
    their updates are written over, each has one.
    """
    found = SOURCES[source](data, seed)
    each = len(found.y) // HONEST
    order = np.argsort(found.y, kind="stable")[: HONEST * each]
    draw = np.random.default_rng(seed)
    theirs = 1 if liars == "idle" else each
    drawn = np.concatenate([draw.choice(len(found.y), theirs, replace=False) for _ in range(LIARS)])
    rows = np.concatenate([order, drawn])
    silo = np.repeat(np.arange(HONEST + LIARS), [each] * HONEST + [theirs] * LIARS)
    made = {"x": _seen(found.x[rows]), "y": found.y[rows], "silo": silo}
    x, y = found.test if found.test is not None else (found.x, found.y)
    return {**made, "x_test": _seen(x[:]), "y_test": np.asarray(y)}


def _seen(x: np.ndarray) -> np.ndarray:
    pixels = np.asarray(x)
    return ((pixels.astype(np.float32) / (255 if pixels.max() > 16 else 16) - MEAN) / STD).astype(np.float32)


class SameDropout(nn.Module):
    """Dropout by one mask, in all steps of all silos, as the authors' simulator has it.

    Their code restores the state of the generator after each worker.
    """

    scale: Tensor

    def __init__(self, share: float, *shape: int) -> None:
        super().__init__()
        kept = torch.rand(BATCH, *shape, generator=torch.Generator().manual_seed(5)) >= share
        self.register_buffer("scale", kept / (1 - share), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Leave out the same units or channels as ever."""
        return x * self.scale[: len(x)] if self.training else x


def cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """Return their CNN: two 3x3 convolutions (no ReLU after the second), 2x2 pooling, 128 units."""
    channels, height, width = shape
    features = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        MaxPool2x2(),
        SameDropout(0.25, 64, 1, 1),
        nn.Flatten(),
        nn.Linear(features, 128),
        nn.ReLU(),
        SameDropout(0.5, 128),
        nn.Linear(128, classes),
    )


class KrumOfFourthPowers(WeightRule):
    """Krum as the authors' code has it: it squares what are squared distances already.

    Where honest updates differ much, it takes others than Krum of the paper (Blanchard et al. 2017).
    """

    tolerates = True
    chooses = True

    def weights(self, gram: np.ndarray, liars: int) -> np.ndarray:
        """Return 1 for the update of the least sum of ||x_i - x_j||^4 over its n - f - 2 nearest."""
        n, squares = len(gram), gram.diagonal()
        fourth = (squares[:, None] + squares - 2 * gram) ** 2
        others = fourth[~np.eye(n, dtype=bool)].reshape(n, n - 1)
        return np.eye(n)[np.sort(others, axis=1)[:, : n - liars - 2].sum(1).argmin()]
