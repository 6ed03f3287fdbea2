"""Metrics in torchmetrics' protocol, and what is to be known of each to report it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:  # what reads the figures of runs alone needs no torch
    from torch import Tensor


class Metric(Protocol):
    """One metric on some examples: a metric of torchmetrics is one as it stands.

    A plain one may name, in `summed`, its tensors that add up over silos, if all of its states do.
    """

    @property
    def higher_is_better(self) -> bool | None:
        """Whether a higher value is better; None is taken as True."""

    def update(self, outputs: Tensor, y: Tensor) -> None:
        """Add a batch: predictions and targets, as the task's `scored` returns them."""

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
        """Return what is to be known of a metric; one of torchmetrics drawn from 0 to 1 is a share."""
        higher = metric.higher_is_better is not False
        bounds = getattr(metric, "plot_lower_bound", None), getattr(metric, "plot_upper_bound", None)
        return cls(name=name, higher_is_better=higher, share=getattr(metric, "share", bounds == (0, 1)))

    @property
    def test(self) -> str:
        """The key of its value on the global test set."""
        return f"test_{self.name}"

    @property
    def silo(self) -> str:
        """What the keys of its values at the silos begin with."""
        return f"silo_{self.name}"

    @property
    def pooled(self) -> str:
        """The key of its value on all that silos hold out, as if it lay in one place."""
        return f"{self.silo}_pooled"

    @property
    def weighted(self) -> str:
        """The key of the silos' mean by their examples."""
        return f"{self.silo}_weighted"

    @property
    def judged_by(self) -> tuple[str, ...]:
        """The keys that a target is for, the first that a round has:
        on the test set, on all that silos hold out."""
        return self.test, self.pooled, self.weighted

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


ACCURACY = MetricInfo(name="accuracy", share=True)
"""What runs are judged by that say nothing of their metric: those of a classification."""
