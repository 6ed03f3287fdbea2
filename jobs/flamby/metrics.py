"""FLamby's metric of KiTS19, which counts a tumour as part of its kidney."""

from __future__ import annotations

import torch
from torch import Tensor


class KidneyDice:
    """The mean of two Dice coefficients: of kidney with tumour, and of tumour (fed_kits19/metric.py).

    FLamby's is the mean over batches; this one counts all voxels alike.
    """

    higher_is_better = True
    share = True
    summed = ("both", "sizes")

    def __init__(self) -> None:
        self.both = torch.zeros(2, dtype=torch.long)
        self.sizes = torch.zeros(2, dtype=torch.long)

    def update(self, predictions: Tensor, y: Tensor) -> None:
        """Add probabilities of classes, shape [n, 3], and targets, shape [n]."""
        answers = predictions.argmax(1)
        for place, least in enumerate((1, 2)):
            found, there = answers >= least, y >= least
            self.both[place] += (found & there).sum().cpu()
            self.sizes[place] += (found.sum() + there.sum()).cpu()

    def compute(self) -> Tensor:
        """Return the mean so far; what is neither there nor found counts not."""
        return (2 * self.both / self.sizes).nanmean()
