"""Small volumes of three silos, in which a bright cube is to be found."""

from __future__ import annotations

import numpy as np


def examples(seed: int) -> dict[str, np.ndarray]:
    """Return 14 volumes and the masks of their cubes; silos train on 9 and hold out the rest."""
    draw, n = np.random.default_rng(seed), 14
    x = draw.random((n, 1, 12, 12, 12), np.float32) / 2
    y = np.zeros((n, 12, 12, 12), np.uint8)
    for volume, mask in zip(x, y, strict=True):
        box = tuple(slice(a, a + 4) for a in draw.integers(0, 8, 3))
        volume[0][box], mask[box] = 1, 1
    return {"x": x, "y": y, "silo": np.arange(n) % 3, "held_out": np.arange(n) > 8}
