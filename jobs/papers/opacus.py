"""What the MNIST example of Opacus trains with differential privacy: its CNN, on digits as it sees them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

MEAN, STD = 0.1307, 0.3081


class Standardized(nn.Module):
    """Take the mean of MNIST's pixels away and divide by their deviation."""

    def forward(self, x: Tensor) -> Tensor:
        """Return pixels of about mean 0 and deviation 1."""
        return (x - MEAN) / STD


def cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """Return the CNN of Opacus' example: 26,010 parameters on MNIST.

    Convolutions of 16 (8x8) and 32 (4x4) channels with stride 2, each followed by ReLU and 2x2 pooling with
    stride 1, then 32 units.

    Args:
        shape: [channels, height, width] of an image.
        classes: Classes to tell apart.
    """
    channels, *sides = shape
    height, width = ((side // 2 - 5) // 2 for side in sides)
    return nn.Sequential(
        Standardized(),
        nn.Conv2d(channels, 16, kernel_size=8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, kernel_size=4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(32 * height * width, 32),
        nn.ReLU(),
        nn.Linear(32, classes),
    )
