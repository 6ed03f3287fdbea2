"""Convolutional models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mpifl.learning.models.classifier import Classifier
from mpifl.learning.models.pooling_layers import MaxPool2x2


def cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """Return the CNN of McMahan et al. 2017, section 3: 1,663,370 parameters on MNIST.

    Two 5x5 convolutions with 32 and 64 channels, each followed by 2x2 max pooling, 512 fully connected units,
    ReLU: after the pooling, where it gives the same values and gradients as before it, for a quarter of the
    work.
    """
    channels, height, width = shape
    features = nn.Sequential(
        nn.Conv2d(channels, 32, kernel_size=5, padding=2),
        MaxPool2x2(),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=5, padding=2),
        MaxPool2x2(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
    )
    return Classifier(features, nn.Linear(512, classes))


def unet(shape: Sequence[int], classes: int, width: int = 16, depth: int = 3) -> nn.Module:
    """Return a U-Net of images (Ronneberger et al. 2015) with group normalisation: classes of pixels.

    Convolutions are padded, so that answers are as large as images, of any size.

    Args:
        shape: [channels, height, width] of an image.
        classes: Logits of a pixel.
        width: Channels of the first stage; each has twice those of the stage before. Even.
        depth: How often the image is halved.
    """
    channels, _, _ = shape
    return UNet(channels, classes, [width << stage for stage in range(depth + 1)])


class UNet(nn.Module):
    """Stages down, stages up, and what the ones hand to the others."""

    def __init__(self, channels: int, classes: int, widths: Sequence[int]) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList([_twice(a, b) for a, b in pairwise([channels, *widths])])
        self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(pairs)])
        self.merge = nn.ModuleList([_twice(2 * a, a) for a, _ in reversed(pairs)])
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, shape [n, classes, height, width], of images, shape [n, channels, height, width]."""
        first, *others = self.down
        kept = [first(x)]
        for stage in others:
            kept.append(stage(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            beside = kept.pop()
            x = merge(torch.cat([beside, up(x, output_size=beside.shape[-2:])], 1))
        logits: Tensor = self.head(x)
        return logits


def _twice(before: int, width: int) -> nn.Sequential:
    """Return two 3x3 convolutions with group normalisation (Wu & He 2018) and ReLU."""
    layers: list[nn.Module] = []
    for entering in (before, width):
        layers += [nn.Conv2d(entering, width, 3, padding=1), nn.GroupNorm(2, width), nn.ReLU()]
    return nn.Sequential(*layers)
