"""Augmentation by turns, sizes, shifts and brightness: each image by its own draws, its mask alike."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mpifl.data import Aims, Inputs
from mpifl.data.batches.augment import Change, check_images


@dataclass(frozen=True)
class Warp:
    """How far images are changed at most; see the keys of `[data]`."""

    rotation: float = 0.0
    zoom: tuple[float, float] = (1.0, 1.0)
    shift: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0

    @property
    def moves(self) -> bool:
        """Whether pixels move."""
        return bool(self.rotation or self.shift) or self.zoom != (1.0, 1.0)


def load_warp(key: str, how: Warp, features: Inputs, targets: Aims | None) -> Change:
    """Return the augmentation of a federation's images.

    Args:
        key: The key that asks for it, for the error.
        how: How far images are changed.
        features: The format of an example.
        targets: The format of a target; a mask moves with its image.

    Raises:
        InputError: examples are no images, or targets are neither single nor masks of them.
    """
    _, outside = check_images(f"[data] {key}", features, targets)
    return functools.partial(_warped, how, outside)


def _warped(
    how: Warp, outside: int | None, batch: Mapping[str, Any], generator: torch.Generator
) -> dict[str, Any]:
    """Change the images of a batch, shape [n, channels, height, width], and its masks.

    All numbers are drawn, so that one key does not change what another draws. Outside of an image it is 0 as
    the model sees it, and its mask has the class `outside`.
    """
    x, y = batch["x"], batch["y"]
    turn, size, across, down, light, range_ = torch.rand(6, len(x), generator=generator).to(x.device)
    if how.moves:
        grid = _grid(how, x, turn, size, 2 * across - 1, 2 * down - 1)
        x = F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        if outside is not None:
            layers = (y - outside).float().reshape(len(y), -1, *y.shape[-2:])
            moved = F.grid_sample(layers, grid, mode="nearest", padding_mode="zeros", align_corners=False)
            y = (moved.reshape(y.shape) + outside).to(y.dtype)
    if how.brightness:
        x = x * (1 + how.brightness * (2 * light - 1)).view(-1, 1, 1, 1)
    if how.contrast:
        mean = x.mean((1, 2, 3), keepdim=True)
        x = mean + (x - mean) * (1 + how.contrast * (2 * range_ - 1)).view(-1, 1, 1, 1)
    return {"x": x, "y": y}


def _grid(how: Warp, x: Tensor, turn: Tensor, size: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Return where each pixel of the new images comes from, [n, height, width, 2], from -1 to 1.

    Pixels stay square: a turn by a of an image [H, W] about its centre is
    [[cos a, sin a H / W], [-sin a W / H, cos a]] in these units.
    """
    height, width = x.shape[-2:]
    angle = math.radians(how.rotation) * (2 * turn - 1)
    low, high = how.zoom
    scale = low + (high - low) * size
    cos, sin = angle.cos() / scale, angle.sin() / scale
    rows = [[cos, sin * (height / width)], [-sin * (width / height), cos]]
    dx, dy = 2 * how.shift * across, 2 * how.shift * down
    moved = [torch.stack([a, b, -(a * dx + b * dy)], 1) for a, b in rows]
    return F.affine_grid(torch.stack(moved, 1), [len(x), 1, height, width], align_corners=False)
