"""Values."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveFloat
from torch import Tensor

from mpifl.tasks.catalogue import VALUES
from mpifl.tasks.federation import Facts, Shards
from mpifl.tasks.losses import Summed, huber, mae, mse
from mpifl.tasks.named import Named


class Regression(Named):
    """Numbers that a model is to come near to: the squared error; mean absolute error and R2.

    Outputs are values, shape [n, columns], or [n] of one; targets are the same values in their own shape.
    """

    kind: ClassVar = "regression"
    losses: ClassVar = {"mse": mse, "mae": mae, "huber": huber}
    catalogue: ClassVar = VALUES
    takes: ClassVar = "values"
    usual: ClassVar = ("mae", "rmse", "r2")

    delta: PositiveFloat | None = None
    """Of the Huber loss: the error above which it is linear; 1 by default."""

    @property
    def places(self) -> tuple[int, ...]:
        """None beside the columns."""
        return ()

    def loss(self, outputs: Tensor, y: Tensor) -> Summed:
        """Return the sum of the losses, and how many values there are."""
        return super().loss(outputs.reshape(y.shape), y)

    def scored(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and targets in double precision, shape [n, columns]."""
        columns = y.flatten(1) if y.dim() > 1 else y.unsqueeze(1)
        return outputs.reshape(columns.shape).double(), columns.double()

    def width(self, spec: Shards) -> int:
        """Return how many numbers a target has."""
        return Facts.of(spec).columns

    def fits(self, facts: Facts) -> bool:
        """Return whether a federation's targets are of its kind."""
        return facts.classes is None or not facts.shape
