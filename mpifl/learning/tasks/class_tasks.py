"""Base classes of tasks with class numbers, or 0 and 1, as targets and logits as outputs."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from mpifl.learning.tasks.federation_view import TaskFacts
from mpifl.learning.tasks.named import PackageTask

Weights = list[NonNegativeFloat] | Literal["balanced"]


class OfClasses(PackageTask):
    """Targets are class numbers, shape [n, ...]; outputs are logits, shape [n, classes, ...]."""

    logits: ClassVar[bool] = True
    aligned: ClassVar[bool] = True
    form: ClassVar[str] = "Multiclass"
    answers: ClassVar[str] = "p"

    weights: Weights | None = None
    """The weights of classes in the loss: a list, or "balanced" by the label counts of the training splits.
    Probabilities are then no risks."""
    ignore: int | None = None
    """The target that counts in neither the loss nor a metric; by default the shards' own."""

    def predict(self, outputs: Tensor) -> Tensor:
        """Return probabilities of classes."""
        return outputs.softmax(1)

    def scored(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities, shape [targets, classes], and the targets that count."""
        return self.counting(self.predict(outputs), y)

    def counting(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs, shape [targets, classes], and targets, without those that do not count."""
        rows, labels = outputs.movedim(1, -1).reshape(-1, outputs.shape[1]), y.reshape(-1)
        if self.ignored is None:
            return rows, labels
        kept = labels != self.ignored
        return rows[kept], labels[kept]

    def fits(self, facts: TaskFacts) -> bool:
        """Return whether a federation's targets fit the task."""
        return facts.classes is not None


class OfPlaces(OfClasses):
    """A class for each place of an example: targets of shape [n, ...] with at least one more dimension."""

    def fits(self, facts: TaskFacts) -> bool:
        """Return whether a federation's targets fit the task."""
        return facts.classes is not None and facts.shape != ()

    def check_targets(self, split: str, y: Any) -> None:
        """Check that an example has several targets, since a federation does not tell this of plain class
        numbers."""
        if not isinstance(y, dict) and len(y.shape) == 1:
            what = f"each example has one class number, and the task '{self.kind}' takes several"
            raise ValueError(f'{what}; use "classification"')


class OfAnswers(PackageTask):
    """Targets are 0 or 1; outputs are logits of 1, which `predict` turns into probabilities."""

    aligned: ClassVar[bool] = True
    answers: ClassVar[str] = "p"

    ignore: int | None = None
    """The target that counts in neither the loss nor a metric; by default the shards' own."""

    def predict(self, outputs: Tensor) -> Tensor:
        """Return probabilities of yes."""
        return torch.sigmoid(outputs)
