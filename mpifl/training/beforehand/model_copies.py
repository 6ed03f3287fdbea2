"""Copies of models for trial steps."""

from __future__ import annotations

import copy

from torch import nn

SHARED = 1 << 28
"""If frozen parameters take more bytes than this, a copy shares them with the model."""


def copied(module: nn.Module) -> nn.Module:
    """Return a copy of a module to train; large frozen parameters are shared."""
    frozen = [p for p in module.parameters() if not p.requires_grad]
    held = {id(p): p for p in frozen} if sum(p.nbytes for p in frozen) > SHARED else {}
    found: nn.Module = copy.deepcopy(module, dict(held))
    return found
