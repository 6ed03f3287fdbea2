"""The task of several labels at once."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import NonNegativeFloat
from torch import Tensor

from mpifl.data.shards import AnySpec
from mpifl.learning.metrics import LABELS
from mpifl.learning.tasks.class_tasks import OfAnswers
from mpifl.learning.tasks.federation_view import TaskFacts
from mpifl.learning.tasks.losses import bce_of_labels, focal_of_labels

PIECE = 1 << 22
"""Targets that are checked at a time."""


class Multilabel(OfAnswers):
    """Yes or no for each of several labels: binary cross entropy, AUROC and F1, averaged over labels.

    Outputs are logits of yes, shape [n, labels]; targets are 0 and 1 of the same shape.
    """

    kind = "multilabel"
    form = "Multilabel"
    losses: ClassVar[dict[str, Any]] = {"bce": bce_of_labels, "focal": focal_of_labels}
    catalogue = LABELS
    takes = "0 and 1 of shape [labels], no floats"
    usual = ("auroc", "f1")
    weights_divide = False

    weights: list[NonNegativeFloat] | None = None
    """How many times a yes counts in the loss: a number for each label."""
    gamma: NonNegativeFloat | None = None
    """The exponent of the focal loss: with a larger value, well-learned targets count less. 2 by default."""

    @property
    def places(self) -> tuple[int, ...]:
        """A target has no dimensions beside its labels."""
        return ()

    def scored(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities of yes and targets, shape [n, labels]; metrics leave out targets that do not
        count."""
        return self.predict(outputs), y.long()

    @property
    def scores_once(self) -> bool:
        """An example adds one row, of all labels."""
        return True

    def width(self, spec: AnySpec) -> int:
        """Return the number of labels."""
        return TaskFacts.of(spec).columns

    def check_targets(self, split: str, y: Any) -> None:
        """Check that all targets are 0, 1 or the target that does not count."""
        if not y.size or (y.min() >= 0 and y.max() <= 1):
            return
        known = [0, 1] if self.ignored is None else [0, 1, self.ignored]
        rows = max(PIECE // y.shape[1], 1)
        for start in range(0, len(y), rows):
            wrong = ~np.isin(y[start : start + rows], known)
            if wrong.any():
                row, column = (int(place) for place in np.argwhere(wrong)[0])
                found = f"label {column} is {y[start + row, column]} in row {start + row}"
                raise ValueError(f"{found}; multilabel takes {', '.join(map(str, known))}")

    def fits(self, facts: TaskFacts) -> bool:
        """Return whether a federation's targets fit the task."""
        values = facts.classes is None and not facts.real and len(facts.shape or ()) == 1
        return values or facts.yes_or_no_of_each

    def weighed(self, facts: TaskFacts) -> int:
        """Return the number of labels."""
        return facts.columns
