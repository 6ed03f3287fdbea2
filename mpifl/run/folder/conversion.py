"""Conversion of weights from `torch.save` to a safetensors file; the user runs it, never a training."""

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
"""How deep weights may be nested: a dict in a stranger's file may contain itself."""
Place = tuple[str, ...]
"""The keys that lead to weights in a file."""


def conversion(path: Path) -> str:
    """Return the advice how to convert a file of `torch.save`."""
    load = f"torch.load({str(path)!r}, map_location='cpu', weights_only=True)"
    imports = "import torch; from mpifl.run.folder.conversion import convert"
    program = f"{imports}; convert(lambda: {load}, {str(path)!r})"
    quoted = f'"{program}"' if _PLAIN.fullmatch(str(path)) else shlex.quote(program)
    return f"convert it: python -c {quoted}"


def convert(load: Callable[[], Any], source: str | Path, key: str | None = None) -> None:
    """Write the weights of a file of `torch.save` to a .safetensors file beside it; print which were taken.

    The weights may be nested in other data, such as a checkpoint of a training.

    Args:
        load: Loads the file without running code from it.
        source: The file.
        key: Which of several sets of weights to take; by default the one with the most numbers.
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
    except Exception:  # torch may raise anything for a stranger's file
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
