"""A model's weights from a file, which may come from anybody."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load
from torch import nn

from mpifl.common import InputError, read_whole

PICKLES = (b"PK\x03\x04", b"\x80")
"""What files begin with that `torch.save` has written, now and before 1.6."""
JSON = b"{"
"""What follows the eight bytes of a length in a safetensors file; that length may begin as a pickle does."""


def load_weights(module: nn.Module, path: Path, what: str) -> None:
    """Give a module the weights of a safetensors file, which errors call `what`; no other kind is read.

    Raises:
        InputError: it is not there, of another kind, torn, or of another model.
    """
    content = _content(path, what)
    if content.startswith(PICKLES) and content[8:9] != JSON:
        raise InputError(f"{what}: is a pickle, which is a program and not run here; {_conversion(path)}")
    try:
        module.load_state_dict(load(content))
    except Exception as error:  # whatever a parser and a model say to what somebody else wrote
        raise InputError(f"{what}: cannot be read: {' '.join(str(error).split())[:300]}") from None


def _content(path: Path, what: str) -> bytes:
    try:
        return read_whole(path)
    except FileNotFoundError:
        raise InputError(f"{what}: is not there; name a .safetensors file") from None
    except OSError as error:
        raise InputError(f"{what}: cannot be read: {error.strerror}") from None


def _conversion(path: Path) -> str:
    """Say how a file that holds a `state_dict` becomes one that is read."""
    new = path.with_suffix(".safetensors").name
    act = f"save_file(torch.load({path.name!r}, weights_only=True), {new!r})"
    return f'convert it: python -c "import torch; from safetensors.torch import save_file; {act}"'
