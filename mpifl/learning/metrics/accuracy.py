"""The share of right answers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mpifl.learning.metrics.metric import Metric
from mpifl.learning.tasks import TaskFacts


class Accuracy:
    """The share of right answers. The answer is the class with the highest output, or yes if its probability
    is above a threshold."""

    higher_is_better = True
    share = True
    summed = ("right", "answers")

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = threshold
        self.right = torch.zeros((), dtype=torch.int64)
        self.answers = torch.zeros((), dtype=torch.int64)

    def update(self, outputs: Tensor, y: Tensor) -> None:
        """Add outputs of classes, shape [n, classes, ...], or probabilities of yes, and targets, shape
        [n, ...]."""
        answers = outputs.argmax(1) if outputs.dim() > y.dim() else outputs > self.threshold
        self.right = self.right + (answers == y).sum()
        self.answers = self.answers + y.numel()

    def compute(self) -> float:
        """Return the share of right answers so far."""
        return float(self.right) / float(self.answers) if self.answers else math.nan


def accuracy(form: str, facts: TaskFacts) -> Metric:
    """Return the share of targets whose most likely class is right."""
    return Accuracy(facts.threshold)
