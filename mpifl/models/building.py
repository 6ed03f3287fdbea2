"""The papers' models by name, and the user's own by `package.module:factory`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from mpifl.common import InputError, load_plugin, rng
from mpifl.data import Features
from mpifl.models.images import cnn
from mpifl.models.perceptrons import logreg, mlp, two_nn
from mpifl.models.text import char_lstm

MODELS: dict[str, Callable[..., nn.Module]] = {
    "logreg": logreg,
    "mlp": mlp,
    "2nn": two_nn,
    "cnn": cnn,
    "char-lstm": char_lstm,
}
"""Factories (shape, classes, **arguments) -> module; shape is that of one example."""


def build(
    model: str | Callable[..., nn.Module], arguments: Mapping[str, Any], features: Features, classes: int, seed: int
) -> nn.Module:
    """Build a model with weights drawn from the seed and see that it takes the federation's features.

    A factory is given `shape` and `classes` if it has parameters of these names, and the arguments of the job.

    Args:
        model: A name of MODELS, the user's own `package.module:factory`, or a factory.
        arguments: The job's.
        features: What one example is.
        classes: How many there are.
        seed: The job's.

    Raises:
        InputError: there is no such model, it does not take these arguments, or it does not fit the features.
    """
    name = model if isinstance(model, str) else getattr(model, "__qualname__", repr(model))
    factory = (MODELS.get(model) or load_plugin(model, "[model] name", MODELS)) if isinstance(model, str) else model
    if not callable(factory):
        raise InputError(f"[model] name = '{name}': is no function; name one that returns a torch.nn.Module")
    accepted = inspect.signature(factory).parameters
    given = {"shape": features.shape, "classes": classes}
    wanted = {key: value for key, value in given.items() if key in accepted} | dict(arguments)
    anything = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    if unknown := [] if anything else sorted(set(wanted) - set(accepted)):
        takes = ", ".join(key for key in accepted if key not in given) or "none"
        raise InputError(f"[model] has no key '{unknown[0]}'; {name} takes {takes}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.derive(seed, "initial weights"))
        try:
            module = factory(**wanted)
            _try_out(module, features, classes)
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
            what = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise InputError(
                f"[model] name = '{name}' does not take features of shape {list(features.shape)} and {classes} classes "
                f"with {dict(arguments)}: {what}"
            ) from None
    return module


@torch.no_grad()
def _try_out(module: nn.Module, features: Features, classes: int) -> None:
    real = features.scale is not None or features.dtype.startswith("float")
    if not isinstance(module, nn.Module):
        raise TypeError(f"it returns {type(module).__name__}, not a torch.nn.Module")
    logits = module.eval()(torch.zeros(2, *features.shape, dtype=torch.float32 if real else torch.int64))
    if not isinstance(logits, torch.Tensor):
        raise ValueError(f"it answers with {type(logits).__name__}, not a tensor of logits")
    if logits.dim() < 2 or logits.shape[0] != 2 or logits.shape[1] != classes:
        raise ValueError(f"it answers 2 examples with shape {list(logits.shape)}, not [2, {classes}]")
