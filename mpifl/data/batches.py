"""Batches of a split as the model is to see them: gathered by blocks, sliced, never one example at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from mpifl.data.features import Features, Inputs
from mpifl.data.shards import Split

BLOCK_BYTES = 16 << 20
"""Features gathered at a time: however large a silo, this much of it is copied."""
Tensors = Any
"""A tensor, or a dict of them by name, where the federation has named arrays."""


class Batches:
    """The batches of one split on one device.

    A batch is (x, y), tensors of shape [n, ...]. Where the federation has named arrays, x or y is a dict of
    tensors by name.
    """

    def __init__(self, split: Split, features: Inputs, device: torch.device) -> None:
        self._x = each(torch.from_numpy, split.x)
        self._y = each(torch.from_numpy, split.y)
        self._y_dtype = split.y_dtype
        self._features = features
        self._device = device
        self._examples = len(split)

    def __len__(self) -> int:
        """Return the number of examples."""
        return self._examples

    def relabelled(self, act: Callable[[Tensor], Tensor]) -> Batches:
        """Return the same examples with what `act` makes of their targets."""
        other = copy.copy(self)
        other._y = each(act, self._y)
        return other

    def shuffled(
        self,
        size: int | Literal["full"],
        generator: torch.Generator,
        beside: Sequence[Tensor] = (),
        *,
        drop_last: bool = False,
    ) -> Iterator[tuple[Tensors, ...]]:
        """Yield one epoch of batches (x, y) of `size` examples (the last may be smaller) in a drawn order.

        Args:
            size: Examples of a batch; "full" is one batch of everything.
            generator: Draws the order.
            beside: Tensors of shape [n, ...] on the device, an entry an example, to be gathered behind x and
                y.
            drop_last: Leave a smaller last batch out.
        """
        if size == "full" or size >= len(self):  # one batch of everything: its order is of no consequence
            yield *self._lent(self._x, self._y), *beside
            return
        order = torch.randperm(len(self), generator=generator)
        if drop_last:
            order = order[: len(self) // size * size]
        for block in torch.split(order, self._block(size)):
            columns = [*self.take(block), *(b[block] for b in beside)]
            yield from zip(*(_sliced(column, size) for column in columns), strict=True)

    def in_order(self, size: int) -> Iterator[tuple[Tensors, Tensors]]:
        """Yield all examples once, in the order of the shard, `size` at a time."""
        for x, y in zip(_sliced(self._x, size), _sliced(self._y, size), strict=True):
            yield self._lent(x, y)

    def take(self, indices: Tensor) -> tuple[Tensors, Tensors]:
        """Return the examples at `indices`, shape [n]."""
        x, y = (each(lambda column: column[indices], columns) for columns in (self._x, self._y))
        return each(self._seen, x, self._features), each(self._aimed, y, self._y_dtype)

    def _lent(self, x: Tensors, y: Tensors) -> tuple[Tensors, Tensors]:
        """Return examples as a model may use them up:
        one that works in place must not write to the mapped shard."""
        seen, aimed = each(self._seen, x, self._features), each(self._aimed, y, self._y_dtype)
        return each(_apart, seen, x), each(_apart, aimed, y)

    def _block(self, size: int) -> int:
        columns = self._x.values() if isinstance(self._x, dict) else [self._x]
        row: int = max(sum(column[:1].nbytes for column in columns), 1)
        return max(BLOCK_BYTES // row // size, 1) * size

    def _aimed(self, y: Tensor, dtype: str) -> Tensor:
        """Return targets as a model receives them: converted a batch at a time, on the device."""
        return y.to(self._device).to(torch.int64 if dtype == "int64" else torch.float32)

    def _seen(self, x: Tensor, features: Features) -> Tensor:
        x = x.to(self._device)
        if features.scale is not None:
            # not in place: x may be the mapped shard itself
            x = x.to(torch.float32).mul(features.scale)
            return x.add_(features.offset) if features.offset else x
        return x.to(torch.float32 if x.is_floating_point() else torch.int64)


def rows(columns: Tensors) -> int:
    """Return how many examples tensors are of, of a dict of them each."""
    return len(next(iter(columns.values())) if isinstance(columns, dict) else columns)


def each(act: Callable[..., Any], held: Any, *beside: Any) -> Any:
    """Do something to an array, or to each of several by name, with what `beside` has of that name."""
    if isinstance(held, Mapping):
        return {name: act(one, *(other[name] for other in beside)) for name, one in held.items()}
    return act(held, *beside)


def _apart(tensor: Tensor, source: Tensor) -> Tensor:
    """Return a tensor that shares no memory with what it was made of."""
    return tensor.clone() if tensor.data_ptr() == source.data_ptr() else tensor


def _sliced(columns: Tensors, size: int) -> list[Tensors]:
    """Return tensors in pieces of `size` rows, of a dict of them dicts."""
    if not isinstance(columns, Mapping):
        return list(torch.split(columns, size))
    pieces = zip(*(torch.split(column, size) for column in columns.values()), strict=True)
    return [dict(zip(columns, piece, strict=True)) for piece in pieces]
