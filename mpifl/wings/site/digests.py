"""Digests of questions and answers, by which a ledger finds them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def digest(about: Sequence[Any], held: Mapping[str, Any]) -> str:
    """Return the sha256 of texts and numbers (`about`), and of tensors and values by name (`held`)."""
    found = hashlib.sha256(repr([str(one) for one in about]).encode())
    for name in sorted(held):
        value = getattr(held[name], "vector", held[name])
        if isinstance(value, Tensor):
            value = value.detach().cpu().contiguous()
            found.update(repr((name, str(value.dtype), list(value.shape))).encode())
            found.update(value.reshape(-1).view(torch.uint8).numpy().data)
        else:
            found.update(repr((name, value)).encode())
    return found.hexdigest()
