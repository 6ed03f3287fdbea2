"""States (tensors and numbers by name) in the safetensors format, as a file or a vector of bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from pydantic_core import from_json
from safetensors import torch as formats
from safetensors.torch import load as from_bytes
from torch import Tensor

from mpifl.common import Buffer, write_atomic

Metadata = Mapping[str, str]
_DTYPES = {dtype: name for name, dtype in formats._TYPES.items()}


def write_state(path: Path, state: Mapping[str, Any]) -> str:
    """Write tensors and numbers by name to one file, atomically; return its sha256."""
    return write_tensors(path, *_split(state))


def packed(state: Mapping[str, Any]) -> bytes:
    """Return the bytes that `write_state` would write."""
    return b"".join(_safetensors(*_split(state)))


def size_of(state: Mapping[str, Any]) -> int:
    """Return how many bytes `write_state` would write."""
    return sum(memoryview(piece).nbytes for piece in _safetensors(*_split(state)))


def pack(state: Mapping[str, Any], empty: Callable[[int, torch.dtype], Tensor]) -> Tensor:
    """Return the bytes that `write_state` would write, as a vector.

    Args:
        state: Tensors and numbers by name.
        empty: Returns an uninitialized vector of a given length and dtype.
    """
    packed = empty(size_of(state), torch.uint8)
    into, end = memoryview(packed.numpy().data), 0
    for piece in _safetensors(*_split(state)):
        start, end = end, end + memoryview(piece).nbytes
        into[start:end] = memoryview(piece).cast("B")
    return packed


def unpack(content: bytes) -> dict[str, Any]:
    """Return the tensors and numbers of a file that `write_state` wrote.

    Raises:
        ValueError: the content is no such file.
    """
    try:
        tensors, numbers = from_bytes(content), numbers_of(content)
    except Exception as error:  # two parsers may raise anything for a stranger's file
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"is not a state ({said})") from None
    if twice := sorted(tensors.keys() & numbers.keys()):
        raise ValueError(f"is not a state ('{twice[0]}' is a tensor and a number)")
    return {**tensors, **numbers}


def numbers_of(content: Buffer) -> dict[str, Any]:
    """Return only the numbers of a file that `write_state` wrote."""
    header = from_json(bytes(content[8 : 8 + int.from_bytes(content[:8], "little")]))
    numbers: dict[str, Any] = dict(from_json(header["__metadata__"]["numbers"]).items())
    return numbers


def _split(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], Metadata]:
    """Return the tensors of a state, and its numbers as metadata."""
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    numbers = {name: value for name, value in state.items() if not isinstance(value, Tensor)}
    return tensors, {"numbers": json.dumps(numbers, sort_keys=True)}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Metadata | None = None) -> str:
    """Write a safetensors file atomically; return its sha256, computed while it is written.

    Tensors are written without a copy: the library's own writer would first copy all of them.
    """
    digest = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(1) as beside:

        def hashed() -> Iterator[Buffer]:
            for piece in _safetensors(tensors, metadata):
                beside.submit(digest.update, piece)
                yield piece

        write_atomic(path, hashed())
    return digest.hexdigest()


def _safetensors(tensors: Mapping[str, Tensor], metadata: Metadata | None) -> Iterator[Buffer]:
    """Yield the pieces of a file in the safetensors format."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    order = sorted(
        tensors, key=lambda name: (-tensors[name].itemsize, name)
    )  # this order keeps each tensor aligned
    end = 0
    for name in order:
        tensor, start, end = tensors[name], end, end + tensors[name].nbytes
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape)}
        header[name]["data_offsets"] = [start, end]
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    yield len(encoded).to_bytes(8, "little") + encoded
    for name in order:
        yield (
            tensors[name]
            .detach()
            .cpu()
            .resolve_conj()
            .contiguous()
            .reshape(-1)
            .view(torch.uint8)
            .numpy()
            .data
        )
