"""Names of parameters without the parts that torch's wrappers and peft add."""

from __future__ import annotations

import re

from torch import nn

WRAPPERS = frozenset(
    ("_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")
)
"""The names that torch.compile, DistributedDataParallel, FSDP, checkpointing and Fabric give to the wrapped
model."""
_KINDS = ("OptimizedModule", "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
_PEFT = re.compile(r"^.*?(?=\bbase_model\.model\.)|\.(modules_to_save\.)?default(?=\.|$)")
"""What a name of a model with peft's adapters has, and a name of its `adapter_model.safetensors` has not."""


def unwrapped(name: str) -> str:
    """Return a parameter's name without the parts that wrappers may have added, peft's among them."""
    plain = ".".join(part for part in name.split(".") if part not in WRAPPERS)
    return _PEFT.sub("", plain) if "base_model.model." in plain else plain


def plain_names(module: nn.Module) -> dict[str, str]:
    """Map the names of a module's state to the names without its wrappers; empty without wrappers.

    A submodule that the user named `module` keeps its name.
    """
    wraps = [name for name, part in module.named_modules() if type(part).__name__ in _KINDS]
    inner = {f"{name}." * bool(name) + part for name in wraps for part in WRAPPERS}
    return {name: _without(name, inner) for name in module.state_dict()} if wraps else {}


def _without(name: str, inner: set[str]) -> str:
    parts = name.split(".")
    kept = [part for i, part in enumerate(parts) if ".".join(parts[: i + 1]) not in inner]
    return ".".join(kept)
