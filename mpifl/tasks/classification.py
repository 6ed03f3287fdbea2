"""Which class an example is of."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from mpifl.tasks.base import Task
from mpifl.tasks.metrics import Accuracy, Metric


class Classification(Task):
    """One class of several for each target: cross entropy, and accuracy.

    Outputs are logits, shape [n, classes, ...]; targets are labels from 0 to classes - 1, shape [n, ...].
    """

    logits: ClassVar[bool] = True

    def loss(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, int]:
        """Return the sum of the cross entropies, and how many labels there are."""
        return F.cross_entropy(outputs, y, reduction="sum"), y.numel()

    def mean_loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross entropy as torch takes it: a quotient of the sum has other bits."""
        return F.cross_entropy(outputs, y)

    def metrics(self) -> dict[str, Metric]:
        """Return the accuracy."""
        return {"accuracy": Accuracy()}


CLASSIFICATION = Classification()
"""The task of a job that names none."""
