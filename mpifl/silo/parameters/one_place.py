"""Finds tensors of a model that share memory, such as layers tied by `.data`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn


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
