"""How a model of the next token goes on with a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mpifl.data import Inputs
from mpifl.learning.models.pretrained import Pretrained

Outputs = Callable[[Any], Tensor]
"""Inputs of one example -> logits of shape [1, classes, L]."""


@dataclass(frozen=True)
class GoingOn:
    """How a text goes on.

    Attributes:
        length: The most tokens that are added.
        end: The token that ends a text; None if nothing does.
        temperature: What logits are divided by before a token is drawn; None takes the likeliest token.
    """

    length: int
    end: int | None = None
    temperature: float | None = None


def check_room(module: Any, tokens: Sequence[int], how: GoingOn) -> None:
    """Raise ValueError if a text would be longer than the positions of a model of transformers."""
    if isinstance(module, Pretrained):
        module.check_room(len(tokens), how.length)


@torch.no_grad()
def go_on(
    module: Any,
    tokens: Sequence[int],
    how: GoingOn,
    stream: torch.Generator,
    *,
    outputs: Outputs,
    features: Inputs,
) -> tuple[list[int], bool]:
    """Return the tokens that a model adds to a text, without the end, and whether the end was reached.

    A model of transformers generates by its library, which draws from torch's global stream. Any other gets
    the last tokens that fit into an example again for each token; a causal model does not see what pads them.

    Args:
        module: The model, in evaluation mode.
        tokens: The text so far, one token at least.
        how: What is wanted.
        stream: Draws tokens.
        outputs: The logits of the model.
        features: The format of an example.

    Raises:
        ValueError: the model takes no tokens.
    """
    if isinstance(module, Pretrained):
        return module.go_on(tokens, how.length, how.end, how.temperature)
    inputs, text = inputs_of(features), list(tokens)
    for _ in range(how.length):
        x, place = inputs(text)
        logits = outputs(x)[0, :, place].float().cpu()
        if how.temperature is None:
            token = int(logits.argmax())
        else:
            token = int(torch.multinomial((logits / how.temperature).softmax(0), 1, generator=stream))
        if token == how.end:
            return text[len(tokens) :], True
        text.append(token)
    return text[len(tokens) :], False


def inputs_of(features: Inputs) -> Callable[[Sequence[int]], tuple[Any, int]]:
    """Return what makes inputs of the last tokens of a text, and tells the place of the last one.

    Raises:
        ValueError: an example is no one row of tokens.
    """
    name, one = next(iter(features.items())) if isinstance(features, dict) else ("", features)
    if (isinstance(features, dict) and len(features) > 1) or len(one.shape) != 1 or one.scale is not None:
        raise ValueError("an example is no one row of tokens")

    def inputs(text: Sequence[int]) -> tuple[Any, int]:
        last = list(text[-one.shape[0] :])
        x = torch.tensor([last + [0] * (0 if one.ragged else one.shape[0] - len(last))])
        named: Any = {name: x} | ({one.mask: torch.ones_like(x)} if one.mask else {}) if name else x
        return named, len(last) - 1

    return inputs
