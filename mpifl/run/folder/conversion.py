"""Conversion of weights from `torch.save` to a safetensors file; the user runs it, never a training."""

from __future__ import annotations

import json
import shlex
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from mpifl.common import InputError, choices, one_line
from mpifl.common.machine import runnable

DEEPEST = 20
"""How deep weights may be nested: a dict in a stranger's file may contain itself."""
Place = tuple[str, ...]
"""The keys that lead to weights in a file."""
USUAL = "argparse.Namespace"
"""What checkpoints hold beside tensors most often; for files whose names cannot be listed."""


class _Left:
    """Takes the place of an object that a file describes, so that nothing of its class is run.

    torch sets items and attributes of an `OrderedDict` alone, which is therefore what a call gives.
    """

    def __new__(cls, *arguments: Any) -> Any:
        return OrderedDict()


class _Described:
    """Takes the place of an array or a dtype of numpy, whose state is a tuple."""

    def __new__(cls, *arguments: Any) -> Any:
        return object.__new__(cls)

    def __setstate__(self, state: Any) -> None:
        """Leave the state."""


def conversion(path: Path) -> str:
    """Return the advice how to convert a file of `torch.save`."""
    return f"convert it: {runnable(shlex.join(['mpifl', 'convert', str(path)]))}"


def convert(source: Path, key: str | None = None, out: Path | None = None) -> str:
    """Write the weights of a file of `torch.save` to a .safetensors file; return which were taken.

    No code of the file is run. The weights may be nested in other data, such as a checkpoint of a training.
    Objects of other classes in the file, such as its settings, are left out.

    Args:
        source: The file.
        key: Which of several sets of weights to take; by default the one with the most numbers.
        out: The new file; by default beside the file, with the ending .safetensors.

    Raises:
        InputError: the file cannot be read or holds no weights, there is no such set, or the new file cannot
            be written.
    """
    new = source.with_suffix(".safetensors") if out is None else out
    if new.exists() and source.exists() and new.samefile(source):
        raise InputError(f"{new}: is the file itself; name another by --out")
    found = {".".join(place): weights for place, weights in _weights(_read(source), ())}
    if not found:
        raise InputError(f"{source}: holds no dict of tensors; write torch.save(model.state_dict(), PATH)")
    if key is not None and key not in found:
        raise InputError(f"{source}: has no weights '{key}'; {choices(key, found)}")
    taken = max(found, key=lambda name: _size(found[name])) if key is None else key
    try:
        save_file({name: value.contiguous().clone() for name, value in found[taken].items()}, new)
    except Exception as error:  # the library has errors of its own
        raise InputError(f"{new}: cannot be written ({one_line(error)})") from None
    others = ", ".join(name or "the file itself" for name in found if name != taken)
    left = f"; not taken: {others} (--key takes another)" if others else ""
    return f"{new}: {len(found[taken])} tensors{f' of {json.dumps(taken)}' if taken else ''}{left}"


def _read(source: Path) -> Any:
    """Read a file by `weights_only`, with stand-ins for all other classes that it names."""
    try:
        others = _others(source)
        with torch.serialization.safe_globals([_stand_in(name) for name in others]):
            held = torch.load(source, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or one_line(error)}") from None
    except Exception:  # torch may raise anything for a stranger's file
        raise _no_weights(source) from None
    if others and isinstance(held, OrderedDict | _Described) and not held:
        raise _no_weights(source)
    return held


def _others(source: Path) -> list[str]:
    """Return the classes and functions beyond tensors that a file names."""
    try:
        return torch.serialization.get_unsafe_globals_in_checkpoint(source)
    except ValueError:  # a file of torch before 1.6
        return [USUAL]


def _stand_in(name: str) -> Any:
    module, _, own = name.rpartition(".")
    kind = _Described if name.startswith("numpy.") else _Left
    return type(own, (kind,), {"__module__": module})


def _no_weights(source: Path) -> InputError:
    what = "holds no weights by name, but a whole module or other objects, which are programs"
    return InputError(f"{source}: {what}; where its class is, write torch.save(model.state_dict(), PATH)")


def _weights(held: Any, place: Place) -> Iterator[tuple[Place, dict[str, Tensor]]]:
    """Yield the dicts of tensors with names as keys, and their places; an optimizer's keys are numbers."""
    if not isinstance(held, dict) or len(place) > DEEPEST:
        return
    tensors = {name: value for name, value in held.items() if isinstance(value, Tensor)}
    if tensors and all(isinstance(name, str) for name in tensors):
        yield place, tensors
    for name, inner in held.items():
        if isinstance(name, str):
            yield from _weights(inner, (*place, name))


def _size(weights: dict[str, Tensor]) -> int:
    return sum(value.numel() for value in weights.values())
