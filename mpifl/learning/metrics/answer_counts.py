"""Counts of what a model answers to examples of each class, and how sure it is."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mpifl.learning.metrics.ranking import RankingMetric


class AnswerCounts(RankingMetric):
    """Counts of probabilities by place, and of classes by the class that was answered.

    Args:
        classes: C, the number of classes.
        threshold: Of two classes, the probability of yes above which it is answered.
    """

    by_example = True
    confusion: Tensor

    def __init__(self, classes: int, threshold: float = 0.5) -> None:
        super().__init__(1 if classes == 2 else classes, None)
        self.threshold = threshold
        self.sums((classes, classes), "confusion")

    def update(self, predictions: Tensor, y: Tensor) -> None:
        """Add probabilities, shape [n, C], or of yes, shape [n] or [n, 1], and true classes, shape [n]."""
        given, true, classes = predictions.reshape(len(y), -1), y.reshape(-1).long(), len(self.confusion)
        answered = given.argmax(1) if given.shape[1] > 1 else (given[:, 0] > self.threshold).long()
        super().update(given[:, -1] if classes == 2 else given, true)
        found = torch.bincount(true * classes + answered, minlength=classes**2)
        self.confusion += found.view_as(self.confusion)

    def compute(self) -> Tensor:
        """Return NaN: it is no single number."""
        return torch.tensor(math.nan)
