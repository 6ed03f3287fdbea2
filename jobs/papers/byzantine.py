"""What Karimireddy et al. 2022 train where some workers lie: MNIST sorted by label, and their CNN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from data_prep.sources import SOURCES
from mpifl import WeightRule
from mpifl.learning.models.pooling_layers import MaxPool2x2

HONEST, LIARS = 20, 5
MEAN, STD = 0.1307, 0.3081
BATCH = 32
"""Examples of a batch, at most."""
MASK = 2**32 - 1


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


def uniform(seed: int, count: int, call: int) -> np.ndarray:
    """Return what CUDA's generator draws for one small tensor: `count` numbers in (0, 1], float32.

    The words are Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section
    3.3): the key is the seed. Each thread draws for one element: its number and that of the call count.
    """
    words = [np.full(count, call, np.uint64), np.zeros(count, np.uint64), np.arange(count, dtype=np.uint64)]
    words.append(np.zeros(count, np.uint64))
    key, low, half = [seed & MASK, seed >> 32], np.uint64(MASK), np.uint64(32)
    for _ in range(10):
        first, third = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (third >> half) ^ words[1] ^ np.uint64(key[0]),
            third & low,
            (first >> half) ^ words[3] ^ np.uint64(key[1]),
            first & low,
        ]
        key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
    return words[0].astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)


class SameDropout(nn.Module):
    """Dropout by one mask, in all steps of all silos, as the authors' simulator has it on a GPU.

    Their code restores the state of the generator after each worker. So the masks are the first that CUDA
    draws after the seed, of batches of 32.
    """

    scale: Tensor

    def __init__(self, share: float, *shape: int, seed: int, call: int) -> None:
        super().__init__()
        kept = uniform(seed, BATCH * math.prod(shape), call) < 1 - share
        scale = torch.from_numpy(kept).reshape(BATCH, *shape) / (1 - share)
        self.register_buffer("scale", scale, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Leave out the same units or channels as ever."""
        return x * self.scale[: len(x)] if self.training else x


def cnn(shape: Sequence[int], classes: int, seed: int = 0) -> nn.Module:
    """Return their CNN: two 3x3 convolutions (no ReLU after the second), 2x2 pooling, 128 units.

    It starts with the weights, and has the dropout masks, of the authors' run of a seed.
    """
    channels, height, width = shape
    features = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            MaxPool2x2(),
            SameDropout(0.25, 64, 1, 1, seed=seed, call=0),
            nn.Flatten(),
            nn.Linear(features, 128),
            nn.ReLU(),
            SameDropout(0.5, 128, seed=seed, call=1),
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


class RFAFromZero(WeightRule):
    """The geometric median as the authors' code has it: 8 steps of Weiszfeld's from 0, and not from the mean.

    Their nu = 0.1 is for gradients; an update is -0.01 times one.
    """

    nu, iterations = 1e-3, 8

    def weights(self, gram: np.ndarray, liars: int) -> np.ndarray:
        """Return the weights 1 / max(nu, ||x_i - z||) of the last step, which are 1 in all."""
        squares, c = gram.diagonal(), np.zeros(len(gram))
        for _ in range(self.iterations):
            away = np.sqrt(np.maximum(squares - 2 * gram @ c + c @ gram @ c, 0.0))
            beta = 1 / np.maximum(self.nu, away)
            c = beta / beta.sum()
        return c
