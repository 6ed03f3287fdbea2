"""The task of the next token."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from mpifl.learning.metrics import TOKENS
from mpifl.learning.tasks.class_tasks import OfPlaces
from mpifl.learning.tasks.losses import cross_entropy


class Language(OfPlaces):
    """A token for each place of a text: cross entropy, perplexity and accuracy.

    Outputs are logits, shape [n, tokens of the vocabulary, length]; targets are tokens, shape [n, length].
    `ignore` is the target of padding.
    """

    kind = "language"
    generates: ClassVar[bool] = True
    losses: ClassVar[dict[str, Any]] = {"cross_entropy": cross_entropy}
    catalogue = TOKENS
    takes = "several class numbers an example"
    usual = ("perplexity", "accuracy")

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] | None = None
    """For the cross entropy: the share of each target that is spread over all classes."""

    def scored(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits, shape [tokens, vocabulary], and the tokens that count; probabilities might round to
        0."""
        return self.counting(outputs, y)
