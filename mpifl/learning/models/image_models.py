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

    It has two 5x5 convolutions with 32 and 64 channels, each with 2x2 max pooling, then 512 fully connected
    units. ReLU comes after the pooling. That gives the same values and gradients as before it, for a quarter
    of the work.
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
    """Return a U-Net for classes of pixels (Ronneberger et al. 2015), with group normalisation.

    Convolutions are padded, so outputs are as large as the images. Images may have any size.

    Args:
        shape: [channels, height, width] of an image.
        classes: The number of logits of a pixel.
        width: Channels of the first stage, an even number; each further stage has twice as many.
        depth: How often the image is halved.

    Raises:
        ValueError: the image cannot be halved so often.
    """
    channels, height, across = shape
    if (most := min(height, across).bit_length() - 1) < depth:
        raise ValueError(f"depth at most {most} for images of {across} x {height}")
    return UNet(channels, classes, [width << stage for stage in range(depth + 1)])


class UNet(nn.Module):
    """Stages down and stages up; each stage up also gets the output of the stage down of its size."""

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
