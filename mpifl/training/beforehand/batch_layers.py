"""Refuses layers that mix the examples of a batch, such as BatchNorm: one example changes the others'
gradients."""

from __future__ import annotations

from torch import nn

from mpifl.common import InputError


def check_layers(module: nn.Module, given: str) -> None:
    """Check that a model treats each example by itself.

    Args:
        module: The model.
        given: The key that needs this.

    Raises:
        InputError: a layer learns statistics of batches.
    """
    norms = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
    for name, layer in module.named_modules():
        mixes = isinstance(layer, norms[0]) or getattr(layer, "track_running_stats", False)
        if isinstance(layer, norms) and mixes:
            what = (
                f"{type(layer).__name__} ('{name}') mixes examples of a batch, and keeps statistics of them"
            )
            raise InputError(f"{given}: {what}; use GroupNorm")
