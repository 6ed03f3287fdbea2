"""The dtypes and layouts that a model's tensors may have. Nothing is cast or untied silently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from safetensors import torch as files
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mpifl.common import InputError

_HELD: frozenset[torch.dtype] = frozenset(files._TYPES.values())
"""The dtypes that model files can hold, according to safetensors."""


def check_tensors(module: nn.Module) -> None:
    """Check that trained parameters are float32 in their own memory, and that model files can hold the model.

    Raises:
        InputError: a tensor does not fit; the line names it.
    """
    for name, parameter in module.named_parameters():
        what = f"the parameter '{name}'"
        if parameter.requires_grad and parameter.dtype != torch.float32:
            to_do = (
                "build the model in float32, or freeze it; [local] precision = 'bf16' has passes in bfloat16"
            )
            raise InputError(f"[model]: {what} is {_name(parameter)}, and float32 is trained; {to_do}")
        _check(parameter, what, written=parameter.requires_grad)
    kept = module.state_dict(keep_vars=True)
    for name, buffer in module.named_buffers():
        _check(buffer, f"the buffer '{name}'", kept=name in kept)
    for name, value in kept.items():
        if not isinstance(value, Tensor):
            what = f"has '{name}', of type {type(value).__name__}, which model files do not hold"
            raise InputError(f"[model]: its state {what}; make it a buffer, or an attribute")
    for one, other in in_one_place(module):
        to_do = "tie them as one (a.weight = b.weight), or use a copy of its own (.clone())"
        raise InputError(f"[model]: {one} and {other} are two tensors that lie in one place; {to_do}")


def _check(tensor: Tensor, what: str, *, kept: bool = True, written: bool = True) -> None:
    if is_lazy(tensor) or tensor.is_meta:
        raise InputError(f"[model]: {what} has no values yet; give its layer all sizes")
    if tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized:
        kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else "sparse"
        raise InputError(f"[model]: {what} is {kind}; use a plain tensor")
    if written and any(n > 1 and not step for n, step in zip(tensor.shape, tensor.stride(), strict=True)):
        spread = "has several numbers in one place (expand), and is written"
        raise InputError(f"[model]: {what} {spread}; use its .contiguous()")
    if kept and tensor.dtype not in _HELD:
        to_do = "use another dtype, or for a buffer persistent=False"
        raise InputError(f"[model]: {what} is {_name(tensor)}, which model files do not hold; {to_do}")


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


class _Place(NamedTuple):
    """A tensor's place in memory: the address of its first byte, and the address after its last byte."""

    begin: int
    end: int
    what: str
    tensor: Tensor


def in_one_place(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield pairs of tensors that share memory, if at least one of the two is trained.

    The flat vector copies a trained tensor, so the other tensor would no longer follow it. One object with
    several names is one tensor.
    """
    places = [_place(f"the parameter '{name}'", one) for name, one in module.named_parameters()]
    places += [_place(f"the buffer '{name}'", one) for name, one in module.named_buffers()]
    reached: list[_Place] = []  # places that the next place may overlap
    for place in sorted((one for one in places if one.tensor.numel()), key=lambda one: one.begin):
        reached = [one for one in reached if place.begin < one.end]
        for one in reached:
            if (one.tensor.requires_grad or place.tensor.requires_grad) and _meet(one, place):
                yield one.what, place.what
        reached.append(place)


def _place(what: str, tensor: Tensor) -> _Place:
    begin = tensor.data_ptr()
    return _Place(begin, begin + _extent(tensor) * tensor.element_size(), what, tensor)


def _extent(tensor: Tensor) -> int:
    """Return the distance in memory from a tensor's first element to the end of its last, in elements."""
    return 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def _meet(one: _Place, other: _Place) -> bool:
    """Return whether two tensors share an element, and are not only interleaved as columns are."""
    if one.tensor.element_size() != other.tensor.element_size():
        return True
    found = [
        torch.arange(_extent(of.tensor)).as_strided(of.tensor.shape, of.tensor.stride()).reshape(-1)
        + (of.begin - one.begin) // of.tensor.element_size()
        for of in (one, other)
    ]
    return bool(torch.isin(*found).any())
