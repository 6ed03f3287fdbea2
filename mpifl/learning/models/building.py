"""Builds the papers' models by name, and a user's own by `package.module:factory`."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from mpifl.common import InputError, did_you_mean, load_plugin, rng, seeded
from mpifl.data import Features, Inputs, each
from mpifl.data.shards import by_path
from mpifl.learning.models.image_models import cnn, unet
from mpifl.learning.models.perceptrons import logreg, mlp, two_nn
from mpifl.learning.models.pretrained import causal, classifier
from mpifl.learning.models.text_models import char_lstm, gpt
from mpifl.learning.tasks import CLASSIFICATION, Task

OF_NAMED_ARRAYS: dict[str, Callable[..., nn.Module]] = {"hf-causal": causal, "hf-classifier": classifier}
"""Models that also take several arrays by name."""
MODELS: dict[str, Callable[..., nn.Module]] = {
    "logreg": logreg,
    "mlp": mlp,
    "2nn": two_nn,
    "cnn": cnn,
    "unet": unet,
    "char-lstm": char_lstm,
    "gpt": gpt,
    **OF_NAMED_ARRAYS,
}
"""Factories (shape, classes, **arguments) -> module; shape is that of one example."""


def build(
    model: str | Callable[..., nn.Module],
    arguments: Mapping[str, Any],
    features: Inputs,
    width: int,
    seed: int,
    task: Task = CLASSIFICATION,
    where: str = "[model]",
) -> nn.Module:
    """Build a model with weights drawn from the seed, and check that it takes the federation's features.

    A factory gets the job's arguments, and `shape` and `classes` if it has parameters of these names.
    `classes` is the width; for a classification this is the number of classes.

    Args:
        model: A name of MODELS, the user's own `package.module:factory`, or a factory.
        arguments: The job's arguments for the model.
        features: The format of one example, by name if it has several arrays.
        width: How many outputs the task needs for each target.
        seed: The job's seed.
        task: The model's task.
        where: The place in the job that names the model, for errors.

    Raises:
        InputError: there is no such model, it does not take these arguments, or it does not fit the features.
    """
    name, factory = _factory_of(model, where)
    if isinstance(features, dict) and model in MODELS.keys() - OF_NAMED_ARRAYS.keys():
        what = f"takes one array; the shards have arrays with names ({', '.join(features)})"
        raise InputError(f"{where} name = '{name}': {what}; use your own, 'package.module:factory'")
    shape = each(lambda one: one.shape, features)
    wanted = _wanted(name, factory, {"shape": shape, "classes": width}, arguments, where)
    module = None
    with torch.random.fork_rng(devices=[]), seeded(drawn := rng.derive(seed, "initial weights")):
        torch.manual_seed(drawn)
        try:
            module = factory(**wanted)
            _try_out(module, features, width, task)
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
            what = _as_tokens(module, features, width, task) or _first_line(error)
            given = f"features of shape {each(list, shape)} and {width} classes with {dict(arguments)}"
            raise InputError(f"{where} name = '{name}' does not take {given}: {what}") from None
    return module


def _wanted(
    name: str,
    factory: Callable[..., nn.Module],
    given: Mapping[str, Any],
    arguments: Mapping[str, Any],
    where: str,
) -> dict[str, Any]:
    """Return the arguments of a factory: those of `given` that it takes, and the job's. Raise InputError if
    the factory does not take one of the job's arguments."""
    accepted = inspect.signature(factory).parameters
    wanted = {key: value for key, value in given.items() if key in accepted} | dict(arguments)
    anything = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    if unknown := [] if anything else sorted(set(wanted) - set(accepted)):
        takes = [key for key in accepted if key not in given]
        hint = did_you_mean(unknown[0], takes)
        raise InputError(
            f"{where} has no key '{unknown[0]}'; {hint}{name} takes {', '.join(takes) or 'none'}"
        )
    return wanted


def _factory_of(model: str | Callable[..., nn.Module], where: str) -> tuple[str, Callable[..., nn.Module]]:
    """Return a model's name for errors, and its factory."""
    if not isinstance(model, str):
        return getattr(model, "__qualname__", repr(model)), model
    factory = MODELS.get(model) or load_plugin(model, f"{where} name", MODELS)
    if not callable(factory):
        raise InputError(
            f"{where} name = '{model}': is not a function; name one that returns a torch.nn.Module"
        )
    return model, factory


@torch.no_grad()
def _try_out(module: nn.Module, features: Inputs, width: int, task: Task) -> None:
    if not isinstance(module, nn.Module):
        raise TypeError(f"it returns {type(module).__name__}, not a torch.nn.Module")
    with _buffers_kept(module):
        task.check_outputs(task.outputs(module.eval(), examples(features)), 2, width)
        if any(one.ragged for one in by_path("x", features).values()):
            try:
                task.outputs(module, examples(features, rows=1))
            except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
                raise ValueError(f"examples have unequal lengths, and of one row it says: {error}") from None


@contextlib.contextmanager
def _buffers_kept(module: nn.Module) -> Iterator[None]:
    """Restore buffers after a trial, except those of lazy layers, which get their first values by it."""
    tables = [(part._buffers, dict(part._buffers)) for part in module.modules()]
    there = [one for _, known in tables for one in known.values() if one is not None and not is_lazy(one)]
    values = [(one, one.detach().clone()) for one in there]
    yield
    for table, known in tables:
        table.clear()
        table.update(known)
    with torch.no_grad():
        for one, value in values:
            one.detach_().copy_(value)


def _as_tokens(module: Any, features: Inputs, width: int, task: Task) -> str:
    """Return a hint if the model would take the whole numbers with a scale, that is as measurements; else
    ""."""
    whole = isinstance(features, Features) and features.scale is None and "int" in features.dtype
    if module is None or not whole:
        return ""
    assert isinstance(features, Features)
    try:
        _try_out(module, features.model_copy(update={"scale": 1.0}), width, task)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError):
        return ""
    what = f"the shards hold {features.dtype} without a scale, which a model receives as tokens"
    return f"{what}; for images partition again with --option scale=1/255"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def examples(features: Inputs, rows: int | None = None) -> Any:
    """Return two examples of zeros, as a model receives them; `rows` sets the length of ragged ones."""
    zeros = each(lambda one: _zeros(one, rows), features)
    if isinstance(features, dict):
        masked = {one.mask: zeros[name] for name, one in features.items() if one.mask is not None}
        zeros |= {mask: torch.ones(one.shape[:2], dtype=torch.int64) for mask, one in masked.items()}
    return zeros


def _zeros(features: Features, rows: int | None) -> torch.Tensor:
    real = features.scale is not None or features.dtype.startswith("float")
    shape = (rows, *features.shape[1:]) if features.ragged and rows is not None else features.shape
    return torch.zeros(2, *shape, dtype=torch.float32 if real else torch.int64)
