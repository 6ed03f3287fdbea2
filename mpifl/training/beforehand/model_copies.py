"""Copies of models, on which steps are tried that the models themselves do not take."""

from __future__ import annotations

import copy

from torch import nn

SHARED = 1 << 28
"""Bytes of frozen parameters above which a copy has those of the model itself."""


def copied(module: nn.Module) -> nn.Module:
    """Return a copy of a module to train; of what is frozen there is none where that is large."""
    frozen = [p for p in module.parameters() if not p.requires_grad]
    held = {id(p): p for p in frozen} if sum(p.nbytes for p in frozen) > SHARED else {}
    found: nn.Module = copy.deepcopy(module, dict(held))
    return found
