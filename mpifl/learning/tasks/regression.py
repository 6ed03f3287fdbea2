"""The tasks of values and of counts."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.learning.metrics import VALUES
from mpifl.learning.tasks.federation_view import TaskFacts
from mpifl.learning.tasks.losses import Summed, huber, mae, mse, poisson
from mpifl.learning.tasks.named import PackageTask
from mpifl.learning.tasks.task import Task

OWN_UNITS = ("mean", "deviation")
"""The keys that let a model learn in other units than the targets'."""
MOST_COUNT = 2**24
"""Above it, a float32 has no place for each whole number."""
NUMBERS = '; to learn numbers, give the label kind = "numeric" in its spec, of arrays say targets=values'
Many = Annotated[list[float], Field(min_length=1)]
ManyPositive = Annotated[list[PositiveFloat], Field(min_length=1)]


class Regression(PackageTask):
    """Values that a model predicts: squared error; mean absolute error, root mean squared error and R2.

    Outputs are values, shape [n, columns], or [n] for one column; targets are values in their own shape. With
    `mean` or `deviation` a model learns (value - mean) / deviation, and the loss uses these.
    """

    kind = "regression"
    losses: ClassVar[dict[str, Any]] = {"mse": mse, "mae": mae, "huber": huber}
    catalogue = VALUES
    takes = "values"
    of_numbers = NUMBERS
    usual = ("mae", "rmse", "r2")

    delta: PositiveFloat | None = None
    """For the Huber loss: the error above which it is linear; 1 by default."""
    mean: float | Many | None = None
    """The mean of the targets, or of each column. It is subtracted from targets and added to outputs; 0 by
    default.
    """
    deviation: PositiveFloat | ManyPositive | None = None
    """The deviation of the targets, or of each column. Targets are divided by it and outputs multiplied; 1 by
    default. Metrics keep the targets' unit."""

    def for_federation(self, spec: AnySpec) -> Task:
        """Return the task with the facts of the federation."""
        shape = TaskFacts.of(spec).shape
        for key in OWN_UNITS:
            given, wanted = getattr(self, key), shape[-1] if shape else 1
            if isinstance(given, list) and len(given) != wanted:
                raise InputError(
                    f"[task] {key}: {len(given)} are given; use {wanted}, one for each column of targets"
                )
        return super().for_federation(spec)

    @cached_property
    def given(self) -> dict[str, Any]:
        """The given keys that a loss may take."""
        return {key: value for key, value in super().given.items() if key not in OWN_UNITS}

    @property
    def places(self) -> tuple[int, ...]:
        """A target has no dimensions beside its columns."""
        return ()

    def loss(self, outputs: Tensor, y: Tensor) -> Summed:
        """Return the sum of the losses, and the number of values."""
        return super().loss(outputs.reshape(y.shape), self._learned(y))

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the predicted values in the targets' own units."""
        if self.mean is None and self.deviation is None:
            return outputs
        mean, deviation = self._moments(outputs)
        return (outputs.reshape(-1, mean.numel()) * deviation + mean).reshape(outputs.shape)

    def scored(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and targets in double precision, shape [n, columns], in the targets' own units."""
        columns = y.flatten(1) if y.dim() > 1 else y.unsqueeze(1)
        return self.predict(outputs.reshape(columns.shape).double()), columns.double()

    def _learned(self, y: Tensor) -> Tensor:
        """Return targets in the units that the model learns."""
        if self.mean is None and self.deviation is None:
            return y
        mean, deviation = self._moments(y)
        return ((y.reshape(-1, mean.numel()) - mean) / deviation).reshape(y.shape)

    def _moments(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the deviation of each column, with the dtype and device of `like`."""
        given = 0.0 if self.mean is None else self.mean, self.deviation or 1.0
        told = [torch.tensor(one, dtype=like.dtype, device=like.device).reshape(-1) for one in given]
        width = max(one.numel() for one in told)
        return told[0].expand(width), told[1].expand(width)

    def width(self, spec: AnySpec) -> int:
        """Return the number of values in a target."""
        return TaskFacts.of(spec).columns

    def fits(self, facts: TaskFacts) -> bool:
        """Return whether a federation's targets fit the task."""
        return facts.classes is None


class Counts(PackageTask):
    """Counts that a model predicts: Poisson regression (McCullagh & Nelder 1989, chapter 6).

    Outputs are logarithms of the mean, shape [n, columns], or [n] for one column; targets are whole numbers
    of 0 or more in their own shape. Predictions are means.
    """

    kind = "counts"
    losses: ClassVar[dict[str, Any]] = {"poisson": poisson}
    catalogue = VALUES
    takes = "values, which are counts"
    of_numbers = NUMBERS
    usual = ("mae", "rmse", "r2")

    @property
    def places(self) -> tuple[int, ...]:
        """A target has no dimensions beside its columns."""
        return ()

    def loss(self, outputs: Tensor, y: Tensor) -> Summed:
        """Return the sum of the losses, and the number of counts."""
        return super().loss(outputs.reshape(y.shape), y)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the means."""
        return outputs.exp()

    def scored(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and counts in double precision, shape [n, columns]."""
        columns = y.flatten(1) if y.dim() > 1 else y.unsqueeze(1)
        return self.predict(outputs.reshape(columns.shape).double()), columns.double()

    def width(self, spec: AnySpec) -> int:
        """Return the number of counts in a target."""
        return TaskFacts.of(spec).columns

    def fits(self, facts: TaskFacts) -> bool:
        """Return whether a federation's targets fit the task."""
        return facts.classes is None and not facts.names and facts.dtype != "bool"

    def check_targets(self, split: str, y: Any) -> None:
        """Check that each target is a whole number of 0 or more.

        Raises:
            ValueError: one is not.
        """
        y = np.asarray(y)
        for bad, what in (
            (y < 0, "is negative"),
            (y != np.round(y), "is no whole number"),
            (y > MOST_COUNT, f"is above {MOST_COUNT:,}, from which on a float32 skips whole numbers"),
        ):
            if bad.any():
                row = int(bad.reshape(len(y), -1).any(1).argmax())
                value = y[row].reshape(-1)[int(bad[row].reshape(-1).argmax())]
                raise ValueError(f"count = {value:g} in row {row} {what}")
