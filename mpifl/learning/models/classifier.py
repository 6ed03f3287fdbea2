"""A model in two parts, features and head, for algorithms that use features."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn


class Classifier(nn.Module):
    """`head(features(x))`: logits, shape [n, classes], from features, shape [n, d]."""

    asks_in_turn: ClassVar[bool] = True
    """Whether it only calls its children one after another, like `nn.Sequential`."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.head(self.features(x))
        return logits
