"""Which tensors of a model lie in one place of memory, as those of a layer that was tied by `.data`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn


class _Place(NamedTuple):
    """Where a tensor lies: the address of its first byte, and that behind its last."""

    begin: int
    end: int
    what: str
    tensor: Tensor


def in_one_place(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield pairs of tensors that lie in one place, of which one at least is trained.

    The flat vector takes a copy of what is trained: the other would no longer follow it. One object under
    several names is one tensor.
    """
    places = [_place(f"the parameter '{name}'", one) for name, one in module.named_parameters()]
    places += [_place(f"the buffer '{name}'", one) for name, one in module.named_buffers()]
    reached: list[_Place] = []  # those that the next may begin in
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
    """Return how many elements there are from a tensor's first to its last, in memory."""
    return 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def _meet(one: _Place, other: _Place) -> bool:
    """Whether two tensors have an element in common, and not only lie between each other as columns do."""
    if one.tensor.element_size() != other.tensor.element_size():
        return True
    found = [
        torch.arange(_extent(of.tensor)).as_strided(of.tensor.shape, of.tensor.stride()).reshape(-1)
        + (of.begin - one.begin) // of.tensor.element_size()
        for of in (one, other)
    ]
    return bool(torch.isin(*found).any())
