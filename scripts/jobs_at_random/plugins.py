"""What random jobs name of the user's own: a model, a rule, a selection, a change of batches, an observer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mpifl import Classifier, Draw, Observer


def normalised(shape: Sequence[int], classes: int) -> nn.Module:
    """A network with BatchNorm and dropout."""
    features = nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(shape), 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2)
    )
    return Classifier(features, nn.Linear(6, classes))


class _Counting(nn.Module):
    """Counts its batches and keeps its largest input, in buffers that training writes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 6)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
            self.largest.copy_(torch.maximum(self.largest, x.detach().max()))
        hidden: Tensor = self.linear(x.flatten(1)).relu()
        return hidden


def counting(shape: Sequence[int], classes: int) -> nn.Module:
    """A network with buffers that have no mean."""
    return Classifier(_Counting(math.prod(shape)), nn.Linear(6, classes))


def middle(rows: Tensor) -> Tensor:
    """Half way between the least and the largest."""
    return (rows.amin(0) + rows.amax(0)) / 2


def in_turn(draw: Draw) -> list[int]:
    """Take one silo after another."""
    return [int(draw.silos[(draw.round * draw.count + i) % len(draw.silos)]) for i in range(draw.count)]


def shifted(batch: dict[str, Any], stream: torch.Generator) -> dict[str, Any]:
    """Return a batch moved by a number that is drawn."""
    return {**batch, "x": batch["x"] + 0.1 * torch.randn((), generator=stream)}


class Quiet(Observer):
    """Says nothing."""
