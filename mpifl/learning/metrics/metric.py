"""The protocol of metrics, as torchmetrics has it, and the facts that are needed to report one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:  # code that only reads figures of runs needs no torch
    from torch import Tensor


class Metric(Protocol):
    """One metric on some examples. A metric of torchmetrics has this protocol.

    A plain metric whose states all add up over silos may name these tensors in `summed`. One with
    `by_example = True` is updated with the task's predictions and targets of whole examples, as `predict`
    returns them, shape [n, ...].
    """

    @property
    def higher_is_better(self) -> bool | None:
        """Whether a higher value is better; None is taken as True."""

    def update(self, outputs: Tensor, y: Tensor) -> None:
        """Add a batch: predictions and targets, as the task's `scored` returns them."""

    def compute(self) -> Any:
        """Return the metric of all batches so far, one number; NaN if it is undefined."""


TITLES = {"auroc": "AUROC", "iou": "IoU", "mae": "MAE", "mse": "MSE", "rmse": "RMSE", "r2": "R²"}
"""Names of metrics that are written otherwise than in a job."""
ROUNDING = 1e-12
"""The share of a target by which sums of float64 may miss it: 0.95 - 0.6 / 12 is below 0.9. One wrong answer
among as many rows as a run can score is far more."""


class MetricInfo(BaseModel):
    """A metric's name in files, which direction is better, and how values are written.

    Attributes:
        name: Part of the keys in `metrics.jsonl`: `test_NAME`, `silo_NAME_mean`.
        higher_is_better: Whether a higher value is better.
        share: Whether it is a share from 0 to 1, which is written in per cent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=r"^\w+$", max_length=100)]
    higher_is_better: bool = True
    share: bool = False

    @classmethod
    def of(cls, name: str, metric: Metric) -> MetricInfo:
        """Return the facts of a metric. One of torchmetrics with plot bounds 0 and 1 is a share."""
        higher = metric.higher_is_better is not False
        bounds = getattr(metric, "plot_lower_bound", None), getattr(metric, "plot_upper_bound", None)
        return cls(name=name, higher_is_better=higher, share=getattr(metric, "share", bounds == (0, 1)))

    @property
    def title(self) -> str:
        """Its name at the beginning of a title or a sentence."""
        return f"{self.label[:1].upper()}{self.label[1:]}"

    @property
    def label(self) -> str:
        """Its name within a sentence."""
        return TITLES.get(self.name, self.name.replace("_", " "))

    @property
    def test(self) -> str:
        """The key of its value on the global test set."""
        return f"test_{self.name}"

    @property
    def silo(self) -> str:
        """The prefix of the keys of its values at silos."""
        return f"silo_{self.name}"

    @property
    def pooled(self) -> str:
        """The key of its value on the held-out examples of all silos together."""
        return f"{self.silo}_pooled"

    @property
    def weighted(self) -> str:
        """The key of the mean over silos, weighted by their examples."""
        return f"{self.silo}_weighted"

    @property
    def judged_by(self) -> tuple[str, ...]:
        """The keys that a target is compared with: the first of these that a round has."""
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
        """Return whether a value is at the target or better, but for rounding."""
        if abs(value - target) <= ROUNDING * abs(target):
            return True
        return value >= target if self.higher_is_better else value <= target

    def write(self, value: float, target: float | None = None) -> str:
        """Write a value for people; one that misses a target with so many digits that it does not look
        reached."""
        usual = f"{value:.2%}" if self.share else f"{value:.4f}" if abs(value) < 1e6 else f"{value:.3g}"
        if target is None or self.reaches(value, target):
            return usual
        finer = (f"{value:.{digits}%}" if self.share else f"{value:.{digits}f}" for digits in range(3, 16))
        read = ((text, float(text.rstrip("%")) / (100 if self.share else 1)) for text in (usual, *finer))
        return next((text for text, seen in read if not self.reaches(seen, target)), usual)

    def write_spread(self, value: float, deviation: float | None) -> str:
        """Write a mean and its deviation in one unit: `79.67 ± 1.93%`; of a single value the value."""
        if deviation is None:
            return self.write(value)
        return f"{self.write(value).rstrip('%')} ± {self.write(deviation)}"

    def write_briefly(self, value: float) -> str:
        """Write a target, or a mark of an axis: four digits at most."""
        return f"{100 * value:.4g}%" if self.share else f"{value:.4g}"


ACCURACY = MetricInfo(name="accuracy", share=True)
"""The main metric of runs that do not name one."""
