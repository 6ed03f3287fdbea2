"""Convolutional models."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from mpifl.models.classifier import Classifier
from mpifl.models.pooling import MaxPool2x2


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
