"""Batches of a split as the model is to see them: gathered by blocks, sliced, never one example at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from mpifl.data.shards import Features, Split

BLOCK_BYTES = 16 << 20
"""Features gathered at a time: however large a silo, this much of it is copied."""


class Batches:
    """The batches of one split on one device."""

    def __init__(self, split: Split, features: Features, device: torch.device) -> None:
        self._x = torch.from_numpy(split.x)
        self._y = torch.from_numpy(split.y)
        self._y_dtype = torch.int64 if split.y_dtype == "int64" else torch.float32
        self._features = features
        self._device = device

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._y)

    def shuffled(
        self,
        size: int | Literal["full"],
        generator: torch.Generator,
        beside: Sequence[Tensor] = (),
        *,
        drop_last: bool = False,
    ) -> Iterator[tuple[Tensor, ...]]:
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
            yield from zip(*(torch.split(column, size) for column in columns), strict=True)

    def in_order(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all examples once, in the order of the shard, `size` at a time."""
        for x, y in zip(torch.split(self._x, size), torch.split(self._y, size), strict=True):
            yield self._lent(x, y)

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the examples at `indices`, shape [n]."""
        return self._seen(self._x[indices]), self._aimed(self._y[indices])

    def _lent(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return examples as a model may use them up:
        one that works in place must not write to the mapped shard."""
        seen, labels = self._seen(x), self._aimed(y)
        return (
            seen.clone() if seen.data_ptr() == x.data_ptr() else seen,
            labels.clone() if labels is y else labels,
        )

    def _aimed(self, y: Tensor) -> Tensor:
        """Return targets as a model receives them: converted a batch at a time, on the device."""
        return y.to(self._device).to(self._y_dtype)

    def _block(self, size: int) -> int:
        row = max(self._x[:1].nbytes, 1)
        return max(BLOCK_BYTES // row // size, 1) * size

    def _seen(self, x: Tensor) -> Tensor:
        x = x.to(self._device)
        if self._features.scale is not None:
            # not in place: x may be the mapped shard itself
            x = x.to(torch.float32).mul(self._features.scale)
            return x.add_(self._features.offset) if self._features.offset else x
        return x.to(torch.float32 if x.is_floating_point() else torch.int64)
