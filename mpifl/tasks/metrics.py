"""Metrics in torchmetrics' protocol, and what is to be known of each to report it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor


class Metric(Protocol):
    """One metric on some examples: a metric of torchmetrics is one as it stands."""

    @property
    def higher_is_better(self) -> bool | None:
        """Whether a higher value is better; None is taken as True."""

    def update(self, outputs: Tensor, y: Tensor) -> None:
        """Add a batch: the task's outputs, and the targets."""

    def compute(self) -> Any:
        """Return the metric of all batches so far, one number; NaN where it is undefined."""


class MetricInfo(BaseModel):
    """What a metric is called in files, which way is better, and how it is written.

    Attributes:
        name: Part of the keys in `metrics.jsonl`: `test_NAME`, `silo_NAME_mean`.
        higher_is_better: Whether a higher value is better.
        share: Whether it is a share, from 0 to 1, and written in per cent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=r"^\w+$", max_length=100)]
    higher_is_better: bool = True
    share: bool = False

    @classmethod
    def of(cls, name: str, metric: Metric) -> MetricInfo:
        """Return what is to be known of a metric."""
        higher = metric.higher_is_better is not False
        return cls(name=name, higher_is_better=higher, share=getattr(metric, "share", False))

    @property
    def test(self) -> str:
        """The key of its value on the global test set."""
        return f"test_{self.name}"

    @property
    def silo(self) -> str:
        """What the keys of its values at the silos begin with."""
        return f"silo_{self.name}"

    @property
    def judged_by(self) -> tuple[str, str]:
        """The keys that a target is for, the first that a round has:
        on the test set, on all that silos hold out."""
        return self.test, f"{self.silo}_weighted"

    @property
    def best(self) -> Callable[..., float]:
        """The function that returns the best of some values."""
        return max if self.higher_is_better else min

    @property
    def worst(self) -> Callable[..., float]:
        """The function that returns the worst of some values."""
        return min if self.higher_is_better else max

    def reaches(self, value: float, target: float) -> bool:
        """Return whether a value is at the target or better."""
        return value >= target if self.higher_is_better else value <= target

    def write(self, value: float) -> str:
        """Write a value as a person reads it."""
        return f"{value:.2%}" if self.share else f"{value:.4f}" if abs(value) < 1e6 else f"{value:.3g}"

    def write_briefly(self, value: float) -> str:
        """Write a target, or a mark of an axis: four digits at most."""
        return f"{100 * value:.4g}%" if self.share else f"{value:.4g}"


class Accuracy:
    """The share of right answers: the class with the highest logit is the answer."""

    higher_is_better = True
    share = True

    def __init__(self) -> None:
        self._right: Tensor | int = 0
        self._answers = 0

    def update(self, outputs: Tensor, y: Tensor) -> None:
        """Add logits, shape [n, classes, ...], and labels, shape [n, ...]."""
        self._right = self._right + (outputs.argmax(1) == y).sum()
        self._answers += y.numel()

    def compute(self) -> float:
        """Return the share of right answers so far."""
        return float(self._right) / self._answers


ACCURACY = MetricInfo.of("accuracy", Accuracy())
"""What runs are judged by that say nothing of their metric: those of a classification."""
