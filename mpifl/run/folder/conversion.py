"""Weights that `torch.save` has written, as a safetensors file: what the user asks for, and no training."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from mpifl.common import InputError, choices, one_line

_PLAIN = re.compile(r"[\w./+@%:, -]+")
DEEPEST = 20
"""How deep weights may lie: a dict of a stranger's file may hold itself."""
Place = tuple[str, ...]
"""The keys by which weights are reached in a file."""


def conversion(path: Path) -> str:
    """Say how a file of `torch.save`'s becomes one that is read."""
    load = f"torch.load({str(path)!r}, map_location='cpu', weights_only=True)"
    imports = "import torch; from mpifl.run.folder.conversion import convert"
    program = f"{imports}; convert(lambda: {load}, {str(path)!r})"
    quoted = f'"{program}"' if _PLAIN.fullmatch(str(path)) else shlex.quote(program)
    return f"convert it: python -c {quoted}"


def convert(load: Callable[[], Any], source: str | Path, key: str | None = None) -> None:
    """Write the weights of a file of `torch.save`'s beside it, as .safetensors; say which were taken.

    Weights may lie within other things, such as a checkpoint of a training.

    Args:
        load: Loads the file, without running code of its.
        source: The file.
        key: Which of several weights; by default those with the most numbers.
    """
    try:
        print(_converted(load, Path(source), key))
    except InputError as error:
        sys.exit(str(error))


def _converted(load: Callable[[], Any], source: Path, key: str | None) -> str:
    try:
        held = load()
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or one_line(error)}") from None
    except Exception:  # whatever torch says to what somebody else wrote
        what = "holds more than tensors, dicts and numbers, such as a whole module, which is a program"
        to_do = "where its class is, write torch.save(model.state_dict(), PATH)"
        raise InputError(f"{source}: {what}; {to_do}") from None
    found = {".".join(place): weights for place, weights in _weights(held, ())}
    if not found:
        raise InputError(f"{source}: holds no dict of tensors; write torch.save(model.state_dict(), PATH)")
    if key is not None and key not in found:
        raise InputError(f"{source}: has no weights '{key}'; {choices(key, found)}")
    taken = max(found, key=lambda name: _size(found[name])) if key is None else key
    new = source.with_suffix(".safetensors")
    save_file({name: value.contiguous().clone() for name, value in found[taken].items()}, new)
    others = ", ".join(name or "the file itself" for name in found if name != taken)
    left = f"; not taken: {others} (a third argument of convert takes another)" if others else ""
    return f"{new}: {len(found[taken])} tensors{f' of {json.dumps(taken)}' if taken else ''}{left}"


def _weights(held: Any, place: Place) -> Iterator[tuple[Place, dict[str, Tensor]]]:
    """Yield the dicts of tensors by name, and how each is reached; an optimizer's go by numbers."""
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
