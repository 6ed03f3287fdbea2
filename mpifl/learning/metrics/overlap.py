"""How far answered and true masks overlap: in each example, or over all voxels of all examples."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from mpifl.learning.metrics.metric import Metric
from mpifl.learning.metrics.summed_metrics import Sums
from mpifl.learning.tasks import TaskFacts


class Overlap(Sums):
    """A coefficient of two masks of a class A and B, averaged over classes.

    Args:
        classes: C.
        union: Whether it is |A and B| / |A or B|; else the Dice coefficient 2 |A and B| / (|A| + |B|).
        background: Whether class 0 counts.
    """

    higher_is_better = True

    def __init__(self, classes: int, union: bool, background: bool) -> None:
        super().__init__()
        self.classes, self.union, self.first = classes, union, 0 if background else 1

    def coefficient(self, both: Tensor, sizes: Tensor) -> Tensor:
        """Return it for voxels in both masks and the sum of both masks' voxels; NaN without any."""
        return both / (sizes - both) if self.union else 2 * both / sizes


class PooledOverlap(Overlap):
    """The coefficient over all voxels of all examples; a class without targets and answers is left out."""

    both: Tensor
    sizes: Tensor

    def __init__(self, classes: int, union: bool, background: bool) -> None:
        super().__init__(classes, union, background)
        self.sums((classes,), "both", "sizes")

    def update(self, predictions: Tensor, y: Tensor) -> None:
        """Add probabilities of classes, shape [voxels, classes], and targets, shape [voxels]."""
        answers = predictions.argmax(1)
        self.both += torch.bincount(y[answers == y], minlength=self.classes)
        self.sizes += torch.bincount(y, minlength=self.classes)
        self.sizes += torch.bincount(answers, minlength=self.classes)

    def compute(self) -> Tensor:
        """Return the coefficient so far."""
        return self.coefficient(self.both, self.sizes)[self.first :].nanmean()


class MeanOverlap(Overlap):
    """The mean of the coefficient over examples, as MONAI's `DiceMetric` and `MeanIoU` have it.

    In each example the mean is over classes with targets. An example without any is left out. With
    `ignore_empty = false` a class with neither targets nor answers counts as 1, and one with answers alone
    as 0.
    """

    by_example: ClassVar[bool] = True
    examples: Tensor
    total: Tensor

    def __init__(self, facts: TaskFacts, union: bool, background: bool, ignore_empty: bool) -> None:
        super().__init__(facts.classes or 1, union, background)
        self.ignore, self.ignore_empty = facts.ignore, ignore_empty
        self.sums((), "examples")
        self.sums((), "total", of=torch.float64)

    def update(self, predictions: Tensor, y: Tensor) -> None:
        """Add probabilities of classes, shape [n, classes, ...], and targets, shape [n, ...]."""
        n, labels = len(y), y.reshape(len(y), -1)
        answers = predictions.argmax(1).reshape(n, -1)
        kept = torch.ones_like(labels, dtype=torch.bool) if self.ignore is None else labels != self.ignore
        start = self.classes * torch.arange(n, device=y.device)[:, None]
        true, called = (start + labels)[kept], (start + answers)[kept]
        shape, size = (n, self.classes), n * self.classes
        there = torch.bincount(true, minlength=size).view(shape)
        both = torch.bincount(true[true == called], minlength=size).view(shape)
        sizes = there + torch.bincount(called, minlength=size).view(shape)
        each = self.coefficient(both.double(), sizes.double())
        each = each.where(there > 0, torch.nan) if self.ignore_empty else each.where(sizes > 0, 1.0)
        means = each[:, self.first :].nanmean(1)
        self.examples += int(means.isfinite().sum())
        self.total += means.nansum()

    @property
    def counted(self) -> int:
        """How many examples the mean is of."""
        return int(self.examples)

    def compute(self) -> Tensor:
        """Return the mean so far, NaN without an example that counts."""
        return self.total / self.examples


def dice(form: str, facts: TaskFacts, background: bool, ignore_empty: bool) -> Metric:
    """Return the Dice coefficient of each example in the mean; class 0 counts only with `background`."""
    return MeanOverlap(facts, union=False, background=background, ignore_empty=ignore_empty)


def dice_pooled(form: str, facts: TaskFacts, background: bool) -> Metric:
    """Return the Dice coefficient over all voxels of all examples."""
    return PooledOverlap(facts.classes or 1, union=False, background=background)


def iou(form: str, facts: TaskFacts, background: bool, ignore_empty: bool) -> Metric:
    """Return intersection over union of each example in the mean; class 0 counts only with `background`."""
    return MeanOverlap(facts, union=True, background=background, ignore_empty=ignore_empty)


def iou_pooled(form: str, facts: TaskFacts, background: bool) -> Metric:
    """Return intersection over union over all voxels of all examples."""
    return PooledOverlap(facts.classes or 1, union=True, background=background)
