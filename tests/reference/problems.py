"""Models that the reference tests train, named `problems:...` in their jobs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mpifl.learning.models.classifier import Classifier


def normalised(shape: Sequence[int], classes: int) -> nn.Module:
    """A small network with BatchNorm, behind what a bias changes:
    Adam would make steps of its rounding errors."""
    features = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.Tanh(), nn.BatchNorm1d(8))
    return Classifier(features, nn.Linear(8, classes))


def featureless(shape: Sequence[int], classes: int) -> nn.Module:
    """A model that does not show its features."""
    return nn.Sequential(nn.Flatten(), nn.Linear(6, classes))


def level(shape: Sequence[int], classes: int) -> nn.Module:
    """A linear model that begins at zero."""
    model = featureless(shape, classes)
    for p in model.parameters():
        nn.init.zeros_(p)
    return model


class LeastSquares(nn.Module):
    """A linear model whose cross entropy for the label 0 is the squared error 1 + (a . w - b)^2 / 2 of x =
    (a, b).

    So the silos' objectives are quadratic in w, and their optima and the algorithms' fixed points known in
    closed form.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(shape[0] - 1))

    def forward(self, x: Tensor) -> Tensor:
        error = 1 + (x[:, :-1] @ self.w - x[:, -1]).square() / 2
        # log-probabilities: e^-error, 1 - that
        return torch.stack([-error, torch.log(-torch.expm1(-error))], dim=1)
