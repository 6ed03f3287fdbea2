"""The small CNN of NIID-Bench, for jobs of the user's own and scripts/reproduce."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from mpifl.learning.models import MaxPool2x2


def lenet(shape: Sequence[int], classes: int, padding: int = 0) -> nn.Module:
    """Return the CNN that Li et al. 2022 (NIID-Bench) train on MNIST: 44,426 parameters there.

    Two 5x5 convolutions with 6 and 16 channels, each followed by 2x2 max pooling and ReLU, then 120 and 84
    units. (The authors' ReLU comes before the pooling: the same values and gradients, from four times the
    work.)

    Args:
        shape: [channels, height, width] of an image.
        classes: Classes to tell apart.
        padding: Of the convolutions, in pixels; 2 keeps the size of images too small to lose a border.
    """
    channels, height, width = shape
    height, width = ((((side + 2 * padding - 4) // 2) + 2 * padding - 4) // 2 for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 6, kernel_size=5, padding=padding),
        MaxPool2x2(),
        nn.ReLU(),
        nn.Conv2d(6, 16, kernel_size=5, padding=padding),
        MaxPool2x2(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
