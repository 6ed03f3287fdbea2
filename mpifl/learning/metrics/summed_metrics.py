"""Metrics in torchmetrics' protocol that torchmetrics lacks, or has only with states that do not add up."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mpifl.learning.metrics.metric import Metric
from mpifl.learning.tasks import TaskFacts

ROUNDING = 1e-12
"""The relative rounding error of a difference of two sums. A variance below it is that of a constant."""


class Sums(nn.Module):
    """A metric whose states are sums over examples."""

    def __init__(self) -> None:
        super().__init__()
        self.summed: list[str] = []

    def sums(self, shape: tuple[int, ...], *names: str, of: torch.dtype = torch.int64) -> None:
        """Add states of a shape, zero at first."""
        for name in names:
            self.register_buffer(name, torch.zeros(shape, dtype=of))
        self.summed += names


class CalibrationError(Sums):
    """The expected calibration error (Naeini et al. 2015): the mean distance of confidence and accuracy over
    bins; of yes and no that of the probability of yes and the share of yes."""

    higher_is_better = False
    examples: Tensor
    right: Tensor
    confidence: Tensor

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.bins = bins
        self.sums((bins,), "examples", "right")
        self.sums((bins,), "confidence", of=torch.float64)

    def update(self, predictions: Tensor, y: Tensor) -> None:
        """Add probabilities of classes, shape [n, classes], or of yes, shape [n], and targets, shape [n]."""
        confidence, right = predictions, y
        if predictions.dim() > 1:
            confidence, answers = predictions.max(1)
            right = answers == y
        bins = (confidence * self.bins).ceil().long().sub(1).clamp(0, self.bins - 1)
        self.examples += torch.bincount(bins, minlength=self.bins)
        self.right += torch.bincount(bins[right.bool()], minlength=self.bins)
        self.confidence = self.confidence.index_add(0, bins, confidence.double())

    def compute(self) -> Tensor:
        """Return the error so far."""
        return (self.confidence - self.right).abs().sum() / self.examples.sum()


class Brier(Sums):
    """The mean squared error of probabilities (Brier 1950)."""

    higher_is_better = False
    examples: Tensor
    error: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.sums((), "examples")
        self.sums((), "error", of=torch.float64)

    def update(self, predictions: Tensor, y: Tensor) -> None:
        """Add probabilities of classes, shape [n, classes], or of yes, shape [n], and targets, shape [n]."""
        p = predictions.double()
        if p.dim() > 1 and p.shape[1] == 2:
            p = p[:, 1]
        wanted = y.double() if p.dim() == 1 else F.one_hot(y, p.shape[1]).double()
        self.examples += len(y)
        self.error += (p - wanted).square().sum()

    def compute(self) -> Tensor:
        """Return the score so far."""
        return self.error / self.examples


class R2(Sums):
    """The share of the targets' variance that predictions explain, averaged over columns; NaN if all targets
    are equal."""

    higher_is_better = True
    examples: Tensor
    residual: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.sums((), "examples")
        self.sums((columns,), "residual", "total", "squares", of=torch.float64)

    def update(self, predictions: Tensor, y: Tensor) -> None:
        """Add predictions and targets, shape [n, columns], or [n] of one column."""
        y = y.double().reshape(-1, len(self.total))
        self.examples += len(y)
        self.residual += (predictions.double().reshape(y.shape) - y).square().sum(0)
        self.total += y.sum(0)
        self.squares += y.square().sum(0)

    def compute(self) -> Tensor:
        """Return the share so far."""
        variance = self.squares - self.total.square() / self.examples
        varied = variance > ROUNDING * self.squares
        return torch.where(varied, 1 - self.residual / variance, torch.nan).nanmean()


class Perplexity(Sums):
    """exp of the mean cross entropy over tokens."""

    higher_is_better = False
    tokens: Tensor
    entropy: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.sums((), "tokens")
        self.sums((), "entropy", of=torch.float64)

    def update(self, logits: Tensor, y: Tensor) -> None:
        """Add logits, shape [n, classes], and targets, shape [n]."""
        self.tokens += len(y)
        self.entropy += F.cross_entropy(logits, y, reduction="none").double().sum()

    def compute(self) -> Tensor:
        """Return the perplexity so far."""
        return (self.entropy / self.tokens).exp()


def calibration_error(form: str, facts: TaskFacts, bins: int) -> Metric:
    """Return the expected calibration error: the mean distance of confidence and accuracy over bins; of yes
    and no that of the probability of yes and the share of yes."""
    return CalibrationError(bins)


def brier(form: str, facts: TaskFacts) -> Metric:
    """Return the Brier score: the squared error of the probability of yes; of more classes the sum of all."""
    return Brier()


def r2(form: str, facts: TaskFacts) -> Metric:
    """Return the coefficient of determination: the share of the variance that is explained."""
    return R2(facts.columns)


def perplexity(form: str, facts: TaskFacts) -> Metric:
    """Return the perplexity: exp of the mean cross entropy over tokens."""
    return Perplexity()
