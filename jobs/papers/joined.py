"""What split training is held against: its network in one place, over all columns or those of some silos."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from mpifl.learning.models import MODELS


class Joined(nn.Module):
    """A bottom for each silo over its columns, and a top over their concatenated lines, or their sum."""

    def __init__(self, parts: Sequence[slice], bottoms: Sequence[nn.Module], top: nn.Module | None) -> None:
        super().__init__()
        self.parts, self.bottoms, self.top = parts, nn.ModuleList(bottoms), top

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        flat = x.flatten(1)
        lines = [bottom(flat[:, part]) for part, bottom in zip(self.parts, self.bottoms, strict=True)]
        found: Tensor = self.top(torch.cat(lines, 1)) if self.top else torch.stack(lines).sum(0)
        return found


def joined(
    classes: int,
    widths: Sequence[int],
    hidden: Sequence[int],
    cut: int,
    top: Sequence[int] | None = None,
    silos: Sequence[int] | None = None,
) -> nn.Module:
    """Return the network of a split training in one piece.

    Args:
        classes: Classes to tell apart.
        widths: How many neighbouring columns each silo has.
        hidden: Units of each bottom's hidden layers.
        cut: The width of a line.
        top: Units of the top's hidden layers; without, the lines are summed.
        silos: Those whose columns are seen; all.
    """
    ends = list(accumulate(widths, initial=0))
    seen = range(len(widths)) if silos is None else silos
    perceptron = MODELS["mlp"]
    bottoms = [perceptron((widths[silo],), cut, hidden) for silo in seen]
    head = None if top is None else perceptron((cut * len(bottoms),), classes, top)
    return Joined([slice(ends[silo], ends[silo + 1]) for silo in seen], bottoms, head)
