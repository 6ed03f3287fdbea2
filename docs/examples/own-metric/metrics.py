"""A metric of one's own, as screening asks for it."""

import torch
from torch import Tensor

PLACES = 1000


class SensitivityAt95:
    """The share of the ill that is found where at least 95 % of the healthy are left in peace."""

    higher_is_better = True
    share = True  # shown in per cent
    summed = ("counts",)  # adds up over silos: so it is known of all examples, too

    def __init__(self) -> None:
        self.counts = torch.zeros(2, PLACES + 1, dtype=torch.long)

    def update(self, predictions: Tensor, y: Tensor) -> None:
        """Count probabilities of being ill, shape [n], of the healthy and the ill, y, shape [n]."""
        places = (predictions * PLACES).long() + (PLACES + 1) * y.long()
        self.counts += torch.bincount(places.cpu(), minlength=self.counts.numel()).view_as(self.counts)

    def compute(self) -> Tensor:
        """Return the sensitivity so far; NaN, which counts in no mean, while nobody is ill, or healthy."""
        above = self.counts.flip(1).cumsum(1) / self.counts.sum(1, keepdim=True)
        alarms, found = above
        return (
            torch.where(alarms <= 0.05, found, 0).max()
            if not above.isnan().any()
            else torch.tensor(torch.nan)
        )
