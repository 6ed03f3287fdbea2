"""The task of one class of several."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor
from torch.nn import functional as F

from mpifl.common import InputError
from mpifl.data.shards import AnySpec, encoding_of
from mpifl.learning.metrics import CLASSES
from mpifl.learning.tasks.class_tasks import OfClasses
from mpifl.learning.tasks.losses import cross_entropy, focal
from mpifl.learning.tasks.task import Task

_aten = torch.ops.aten
_MEAN, _IGNORED = 1, -100
"""How `F.cross_entropy` calls these: the mean over targets, and the target that counts for nothing."""


@cache
def _one(device: torch.device) -> Tensor:
    """Return the gradient of a loss for itself."""
    return torch.ones((), device=device)


class Classification(OfClasses):
    """One class of several for each target: cross entropy, and accuracy.

    Outputs are logits, shape [n, classes, ...]; targets are labels from 0 to classes - 1, shape [n, ...].
    """

    kind = "classification"
    losses: ClassVar[dict[str, Any]] = {"cross_entropy": cross_entropy, "focal": focal}
    catalogue = CLASSES
    takes = "class numbers"
    usual = ("accuracy",)
    one_hot = True

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] | None = None
    """For the cross entropy: the share of each target that is spread over all classes."""
    gamma: NonNegativeFloat | None = None
    """The exponent of the focal loss: with a larger value, well-learned targets count less. 2 by default."""

    def for_federation(self, spec: AnySpec) -> Task:
        """Return the task with the facts of the federation; refuse the next tokens of texts."""
        if (encoding_of(getattr(spec, "source", {})) or {}).get("kind") == "tokens":
            what = "takes classes; the shards have next tokens of texts, for which use 'language'"
            raise InputError(f"[task] name = '{self.kind}': {what}")
        return super().for_federation(spec)

    def mean_loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss. A plain cross entropy uses torch's own mean, since dividing the sum gives
        other bits."""
        return F.cross_entropy(outputs, y) if self.plain else super().mean_loss(outputs, y)

    def loss_by_formula(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the mean loss and its gradient of a plain cross entropy of one target an example."""
        of_classes = outputs.dim() == 2 and y.dim() == 1 and y.dtype == torch.int64
        if not self.plain or not of_classes or outputs.dtype != torch.float32:
            return None
        with torch.no_grad():
            logs = _aten._log_softmax(outputs, 1, False)
            kind = None, _MEAN, _IGNORED
            loss, count = _aten.nll_loss_forward(logs, y, *kind)
            for_logs = _aten.nll_loss_backward(_one(loss.device), logs, y, *kind, count)
            return loss, _aten._log_softmax_backward_data(for_logs, logs, 1, logs.dtype)

    def weighted_objective(self, module: Any, x: Any, y: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum of examples' losses; a plain cross entropy needs fewer operations."""
        if not self.plain:
            return super().weighted_objective(module, x, y, weights)
        losses = F.cross_entropy(self.outputs(module, x), y, reduction="none")
        return ((losses if losses.dim() == 1 else losses.flatten(1).mean(1)) * weights).sum()

    @cached_property
    def plain(self) -> bool:
        """Whether the loss is cross entropy without options; cached, since every step asks."""
        return self.criterion is cross_entropy and not self.given and self.ignored is None

    @property
    def choices(self) -> int:
        """The number of classes if an example has one target, else 0."""
        return (self._facts.classes or 0) if self.single else 0

    def scored(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities and targets. If accuracy is the only metric, return logits: rounding may turn
        two different logits into equal probabilities."""
        if self.names == ["accuracy"]:
            return (outputs, y) if self.ignored is None else self.counting(outputs, y)
        return super().scored(outputs, y)


CLASSIFICATION = Classification()
"""The default task of a job."""
