"""The task of yes or no."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, NonNegativeFloat
from torch import Tensor

from mpifl.data.shards import AnySpec
from mpifl.learning.metrics import YES_OR_NO
from mpifl.learning.tasks.class_tasks import OfAnswers, Weights
from mpifl.learning.tasks.federation_view import TaskFacts
from mpifl.learning.tasks.losses import Summed, bce, focal_bce


class Binary(OfAnswers):
    """Yes or no for each target: binary cross entropy, AUROC and accuracy.

    Outputs are logits of yes, shape [n, 1, ...] or [n, ...]; targets are labels 0 and 1, shape [n, ...].
    """

    kind = "binary"
    form = "Binary"
    losses: ClassVar[dict[str, Any]] = {"bce": bce, "focal": focal_bce}
    catalogue = YES_OR_NO
    takes = "class numbers 0 and 1"
    usual = ("auroc", "accuracy")

    weights: Weights | None = None
    """The weights of no and yes in the loss: a list of two, or "balanced" by the label counts of the training
    splits. Probabilities are then no risks."""
    gamma: NonNegativeFloat | None = None
    """The exponent of the focal loss: with a larger value, well-learned targets count less. 2 by default."""

    threshold: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The probability above which the answer is yes; 0.5 by default. The loss does not know it."""

    def loss(self, outputs: Tensor, y: Tensor) -> Summed:
        """Return the sum of the losses, and its divisor."""
        return super().loss(outputs.reshape(y.shape), y)

    def scored(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities of yes, shape [targets], and the targets that count."""
        answers, labels = self.predict(outputs).reshape(-1), y.reshape(-1)
        kept = slice(None) if self.ignored is None else labels != self.ignored
        return answers[kept], labels[kept].long()

    def width(self, spec: AnySpec) -> int:
        """Return 1: the logit of yes."""
        return 1

    @property
    def choices(self) -> int:
        """2 (no and yes) if an example has one target, else 0."""
        return 2 if self.single else 0

    @property
    def cut_off(self) -> float:
        """The probability above which the answer is yes."""
        return 0.5 if self.threshold is None else self.threshold

    @property
    def of_answers(self) -> list[str]:
        """The metrics of answers of yes and no; the others are of probabilities."""
        made = ("accuracy:", "torchmetrics_library:")
        return [
            name for name, one in self.chosen.items() if str(getattr(one.kind, "maker", "")).startswith(made)
        ]

    def weighed(self, facts: TaskFacts) -> int:
        """Return 2: no and yes."""
        return 2

    def fits(self, facts: TaskFacts) -> bool:
        """Return whether a federation's targets fit the task."""
        return facts.classes == 2 or (facts.classes is None and facts.dtype == "bool")
