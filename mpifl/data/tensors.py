"""Tensors of examples: one tensor, or several by name if the federation has named arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Tensors = Any
"""A tensor, or a dict of tensors by name."""


def rows(columns: Tensors) -> int:
    """Return the number of examples in a tensor, or in each tensor of a dict."""
    return len(next(iter(columns.values())) if isinstance(columns, dict) else columns)


def each(act: Callable[..., Any], held: Any, *beside: Any) -> Any:
    """Apply `act` to an array, or to each of several by name, with the entries of `beside` of that name."""
    if isinstance(held, Mapping):
        return {name: act(one, *(other[name] for other in beside)) for name, one in held.items()}
    return act(held, *beside)


def columns_of(held: Tensors) -> list[Any]:
    """Return the tensors, without their names."""
    return list(held.values()) if isinstance(held, dict) else [held]


def rows_at(column: Any, indices: Tensor) -> Any:
    """Return some rows of a column, in a third of the time of indexing."""
    if not isinstance(column, Tensor):
        return column[indices]
    return column.index_select(0, indices if column.is_cpu else indices.to(column.device))


def cut(array: Tensor, box: Sequence[slice]) -> Tensor:
    """Return a box of an array's last dimensions, or all of it if it has fewer."""
    place: Any = (..., *box)
    return array[place] if array.dim() >= len(box) else array


def sliced(columns: Tensors, size: int) -> list[Tensors]:
    """Return a tensor in pieces of `size` rows; for a dict, the pieces are dicts."""
    if not isinstance(columns, Mapping):
        return list(torch.split(columns, size))
    pieces = zip(*(torch.split(column, size) for column in columns.values()), strict=True)
    return [dict(zip(columns, piece, strict=True)) for piece in pieces]
