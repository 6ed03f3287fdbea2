"""Linear and fully connected models."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import nn

from mpifl.learning.models.classifier import Classifier


def mlp(
    shape: Sequence[int], classes: int, hidden: Sequence[int] = (200, 200), bias: bool = True
) -> nn.Module:
    """Return a perceptron with ReLU layers of `hidden` units over the flattened features.

    Without `bias`, the last layer has no bias.
    """
    if not isinstance(hidden, Sequence):
        raise TypeError(f"hidden = {hidden}: must be a list of widths, such as [{hidden}]")
    widths = [math.prod(shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return Classifier(nn.Sequential(*layers), nn.Linear(widths[-1], classes, bias=bias))


def logreg(shape: Sequence[int], classes: int, bias: bool = True) -> nn.Module:
    """Return multinomial logistic regression on the flattened features."""
    return mlp(shape, classes, hidden=(), bias=bias)


def two_nn(shape: Sequence[int], classes: int) -> nn.Module:
    """Return the 2NN of McMahan et al. 2017: two hidden layers of 200 units, 199,210 parameters on MNIST."""
    return mlp(shape, classes, hidden=(200, 200))
