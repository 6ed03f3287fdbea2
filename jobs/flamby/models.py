"""Models of the kinds that FLamby's baselines are, for the jobs beside this file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def linear(shape: Sequence[int], classes: int) -> nn.Module:
    """Return a linear model: the risk of a Cox regression (Cox 1972), or the logit of a logistic one."""
    return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), classes))


def image_cnn(shape: Sequence[int], classes: int, channels: int = 16) -> nn.Module:
    """Return a plain CNN: 3x3 convolutions and pooling (Simonyan & Zisserman 2015), group normalisation
    (Wu & He 2018) and the mean over places (Lin et al. 2014).

    Args:
        shape: [channels, height, width] of an image.
        classes: Classes to tell apart.
        channels: Of the first of three stages; each has twice those of the stage before.
    """
    layers: list[nn.Module] = []
    before = shape[0]
    for width in (channels, 2 * channels, 4 * channels):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU(), nn.MaxPool2d(2)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class DeepMil(nn.Module):
    """Gated attention over the tiles of a bag (Ilse et al. 2018, eq. 9); a tile of zeros is padding.

    Args:
        shape: [tiles, features] of a bag.
        classes: Logits.
        width: Of the embedding of a tile, and of the attention.
    """

    def __init__(self, shape: Sequence[int], classes: int, width: int = 128) -> None:
        super().__init__()
        self.embed = nn.Linear(shape[1], width)
        self.what, self.gate, self.score = (nn.Linear(width, out) for out in (width, width, 1))
        self.head = nn.Sequential(
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width // 2),
            nn.ReLU(),
            nn.Linear(width // 2, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, shape [n, classes], of bags, shape [n, tiles, features]."""
        padding = (x == 0).all(2, keepdim=True)
        tiles = self.embed(x)
        scores = self.score(self.what(tiles).tanh() * self.gate(tiles).sigmoid())
        attention = scores.masked_fill(padding, -1e9).softmax(1)
        logits: Tensor = self.head((attention * tiles).sum(1))
        return logits


NORMS = {"batch": nn.BatchNorm3d, "instance": lambda width: nn.InstanceNorm3d(width, affine=True)}


def _twice(before: int, width: int, norm: str) -> nn.Sequential:
    """Return two 3x3x3 convolutions with normalisation and leaky ReLUs."""
    layers: list[nn.Module] = []
    for entering in (before, width):
        layers += [nn.Conv3d(entering, width, 3, padding=1), NORMS[norm](width), nn.LeakyReLU(0.01)]
    return nn.Sequential(*layers)


class UNet3d(nn.Module):
    """A 3-D U-Net (Cicek et al. 2016); with instance normalisation as nnU-Net has it (Isensee et al. 2021).

    Args:
        shape: [channels, depth, height, width] of a volume, of any sides.
        classes: Logits of each voxel.
        channels: Of the first level; each has twice those of the level above.
        levels: How many there are.
        norm: "batch" or "instance".
    """

    def __init__(
        self, shape: Sequence[int], classes: int, channels: int = 8, levels: int = 3, norm: str = "batch"
    ) -> None:
        super().__init__()
        widths = [channels << level for level in range(levels)]
        pairs = list(zip([shape[0], *widths], widths, strict=False))
        self.down = nn.ModuleList(_twice(before, width, norm) for before, width in pairs)
        self.up = nn.ModuleList(_twice(width + 2 * width, width, norm) for width in reversed(widths[:-1]))
        self.head = nn.Conv3d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, shape [n, classes, ...], of volumes, shape [n, channels, ...]."""
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool3d(x, 2) if level else x)
            kept.append(x)
        kept.pop()
        for block in self.up:
            beside = kept.pop()
            x = F.interpolate(x, size=beside.shape[2:], mode="trilinear", align_corners=False)
            x = block(torch.cat([beside, x], 1))
        logits: Tensor = self.head(x)
        return logits


class Residual(nn.Module):
    """Convolutions of 5x5x5 whose input is added to what they make (Milletari et al. 2016, figure 2)."""

    def __init__(self, before: int, width: int, depth: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for step in range(depth):
            entering = width if step else before
            layers += [nn.Conv3d(entering, width, 5, padding=2), nn.BatchNorm3d(width), nn.ELU()]
        self.convolutions = nn.Sequential(*layers)
        self.beside = nn.Identity() if before == width else nn.Conv3d(before, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of the same sides."""
        return F.elu(self.convolutions(x) + self.beside(x))


class VNet(nn.Module):
    """V-Net (Milletari et al. 2016): residual stages, with strided convolutions down and up.

    Args:
        shape: [channels, depth, height, width] of a patch; sides are multiples of 2^(levels - 1).
        classes: Logits of each voxel.
        channels: Of the first stage; each has twice those of the stage above.
        levels: How many stages go down; FLamby's has 5, from 16 channels on.
    """

    def __init__(self, shape: Sequence[int], classes: int, channels: int = 16, levels: int = 5) -> None:
        super().__init__()
        if any(side % (1 << (levels - 1)) for side in shape[1:]):
            multiple = f"{list(shape[1:])} are no multiples of {1 << (levels - 1)}"
            raise ValueError(f"the sides {multiple}; make other patches, or give fewer levels")
        widths = [channels << level for level in range(levels)]
        steps = list(pairwise(widths))
        self.first = Residual(shape[0], channels, 1)
        self.smaller = nn.ModuleList(nn.Conv3d(before, width, 2, stride=2) for before, width in steps)
        self.down = nn.ModuleList(Residual(width, width, 2) for _, width in steps)
        self.larger = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, stride=2) for a, b in reversed(steps))
        self.up = nn.ModuleList(Residual(2 * a, a, 1) for a, _ in reversed(steps))
        self.head = nn.Conv3d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, shape [n, classes, ...], of patches, shape [n, channels, ...]."""
        x = self.first(x)
        kept: list[Tensor] = []
        for smaller, stage in zip(self.smaller, self.down, strict=True):
            kept.append(x)
            x = stage(F.elu(smaller(x)))
        for larger, stage in zip(self.larger, self.up, strict=True):
            x = stage(torch.cat([kept.pop(), F.elu(larger(x))], 1))
        logits: Tensor = self.head(x)
        return logits
