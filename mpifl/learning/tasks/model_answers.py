"""The tensor in what a model answers: the tensor itself, or that of a dict or `ModelOutput`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

NAMES = ("logits", "out")
"""The names that models of transformers and of torchvision give their outputs."""


def tensor_of(answer: Any) -> Any:
    """Return the tensor that loss and metrics need of a model's answer.

    Args:
        answer: A tensor; or a dict, a `ModelOutput` of transformers or a named tuple that has it as `logits`
            or `out`.

    Returns:
        The tensor; any other answer as it is.
    """
    if isinstance(answer, Tensor):
        return answer
    for name in NAMES:
        found = answer.get(name) if isinstance(answer, Mapping) else getattr(answer, name, None)
        if isinstance(found, Tensor):
            return found
    return answer


def told_of(answer: Any) -> str:
    """Return what an answer is that is no tensor, and what would do."""
    kind = type(answer).__name__
    if not isinstance(answer, Mapping):
        return f"{kind}, not a tensor"
    names = ", ".join(map(str, answer)) or "nothing"
    return f"{kind} of {names}; name its tensor of outputs {' or '.join(NAMES)}, or answer that tensor"
