"""A model that is only a bias, as the top of a split network."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Bias(nn.Module):
    """Adds a bias of shape [width], zeros at first, to outputs of shape [n, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs with the bias added."""
        return x + self.bias
