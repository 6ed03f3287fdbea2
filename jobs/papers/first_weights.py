"""The 2NN of McMahan et al. 2017 with weights and pixels that the paper does not state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

WIDTH = 200
WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "glorot": nn.init.xavier_uniform_,
    "he": lambda weight: nn.init.kaiming_normal_(weight, nonlinearity="relu"),
    "truncated 0.1": lambda weight: nn.init.trunc_normal_(weight, std=0.1, a=-0.2, b=0.2),
    "normal 0.01": lambda weight: nn.init.normal_(weight, std=0.01),
}
"""How weights begin where they do not as PyTorch's; biases are 0 then, 0.1 with `truncated 0.1`, as
TensorFlow's tutorials of 2016 had them."""


class Pixels(nn.Module):
    """Pixels from 0 to 1, shifted and stretched."""

    def __init__(self, shift: float, stretch: float) -> None:
        super().__init__()
        self.shift, self.stretch = shift, stretch

    def forward(self, x: Tensor) -> Tensor:
        """Return (x - shift) * stretch."""
        return (x - self.shift) * self.stretch


def perceptron(
    shape: Sequence[int], classes: int, first: str = "pytorch", shift: float = 0.0, stretch: float = 1.0
) -> nn.Module:
    """Return a perceptron with two hidden layers of 200 units.

    Args:
        shape: Of an example.
        classes: Logits.
        first: A name of `WEIGHTS`, or `pytorch`.
        shift: What is taken from each pixel, of 0 to 1.
        stretch: What it is multiplied by then.
    """
    sides = (torch.Size(shape).numel(), WIDTH, WIDTH, classes)
    layers = [nn.Linear(*pair) for pair in pairwise(sides)]
    if first != "pytorch":
        for layer in layers:
            WEIGHTS[first](layer.weight)
            nn.init.constant_(layer.bias, 0.1 if first == "truncated 0.1" else 0.0)
    one, two, last = layers
    seen = [] if (shift, stretch) == (0.0, 1.0) else [Pixels(shift, stretch)]
    return nn.Sequential(nn.Flatten(), *seen, one, nn.ReLU(), two, nn.ReLU(), last)
