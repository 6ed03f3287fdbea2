"""Batches of a split for a model: an epoch's order is drawn, examples are gathered in blocks and sliced.

Examples of unequal lengths are padded to the longest of their batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from mpifl.common import InputError
from mpifl.data import Features, Inputs, Ragged, Tensors, columns_of, cut, each, rows_at, sliced
from mpifl.data.batches.padding import Padded, Uneven
from mpifl.data.batches.prefetching import ahead
from mpifl.data.batches.resident import Resident, resident_on
from mpifl.data.shards import Split

BLOCK_BYTES = 16 << 20
"""Bytes of features that are gathered at a time, however large the silo."""
LARGEST = 1 << 22
"""The most input numbers in a batch in order, such as two volumes of 128 x 128 x 128; one example may have
more."""


class Batches:
    """The batches of one split on one device.

    A batch is (x, y), tensors of shape [n, ...]. If the federation has named arrays, x or y is a dict of
    tensors by name. Ragged arrays are padded to the longest of the batch: inputs with their fill, targets
    with the value that does not count. Then x also has the masks, under their own names.
    """

    def __init__(self, split: Split, features: Inputs, device: torch.device) -> None:
        self.split = split
        self._x = each(_held, split.x)
        self._y = each(_held, split.y)
        self._ragged = any(isinstance(array, Ragged) for array in split.arrays.values())
        self._y_dtype = split.y_dtype
        self._features = features
        self._device = device
        self._sources = [*_pairs(self._x, split.x), *_pairs(self._y, split.y)]
        """Columns with their source arrays; these arrays identify them on a GPU."""
        self._examples = len(split)
        self._change: Callable[[Tensors, Tensors], tuple[Tensors, Tensors]] | None = None

    def __len__(self) -> int:
        """Return the number of examples."""
        return self._examples

    def changed(self, change: Callable[..., dict[str, Tensors]], generator: torch.Generator) -> Batches:
        """Return the same batches, with a change that `shuffled` applies to each; see `augment`."""

        def of(x: Tensors, y: Tensors) -> tuple[Tensors, Tensors]:
            made = change({"x": x, "y": y}, generator)
            return made["x"], made["y"]

        other = copy.copy(self)
        other._change = of
        return other

    def relabelled(self, act: Callable[[Tensor], Tensor]) -> Batches:
        """Return the same examples with the targets `act(targets)`."""
        other = copy.copy(self)
        other._y = each(act, self._y)
        return other

    def rewritten(self, act: Callable[[Tensors, Tensors], None]) -> Batches:
        """Return a copy of the examples, in the form for a model, which `act` has changed in place."""
        other = copy.copy(self)
        other._x, other._y = self._lent(self._x, self._y)
        other._features = each(lambda one: one.model_copy(update={"scale": None}), self._features)
        act(other._x, other._y)
        return other

    def of_one_length(self) -> Batches:
        """Return the same examples, with ragged ones padded to the federation's longest, not to the longest
        of their batch."""

        def alike(column: Any) -> Any:
            return column.alike() if isinstance(column, Uneven) else column

        other = copy.copy(self)
        other._x, other._y = each(alike, self._x), each(alike, self._y)
        return other

    def shuffled(
        self,
        size: int | Literal["full"],
        generator: torch.Generator,
        beside: Sequence[Tensor] = (),
        *,
        drop_last: bool = False,
    ) -> Iterator[tuple[Tensors, ...]]:
        """Yield one epoch of batches (x, y) of `size` examples in a drawn order; the last batch may be
        smaller.

        Args:
            size: Examples of a batch; "full" is one batch of everything.
            generator: Draws the order.
            beside: Further tensors of shape [n, ...] on the device, gathered in the same order, after x and
                y.
            drop_last: Leave out a smaller last batch.
        """
        drawn = self._drawn(size, generator, beside, drop_last)
        if (change := self._change) is None:
            return drawn
        return ((*change(x, y), *rest) for x, y, *rest in drawn)

    def _drawn(
        self,
        size: int | Literal["full"],
        generator: torch.Generator,
        beside: Sequence[Tensor],
        drop_last: bool,
    ) -> Iterator[tuple[Tensors, ...]]:
        if size == "full" or size >= len(self):  # one batch of everything needs no order
            yield *self._whole(), *beside
            return
        self._settle()
        order = torch.randperm(len(self), generator=generator)
        if drop_last:
            order = order[: len(self) // size * size]
        blocks = torch.split(order, self._block(size))
        taken = ahead(self.take, list(zip(blocks, strict=True)), by_a_thread=self.travels)
        for block, found in zip(blocks, taken, strict=True):
            columns = [*found, *(b[block] for b in beside)]
            yield from zip(*(sliced(column, size) for column in columns), strict=True)

    def in_order(
        self, size: int, only: Sequence[int] | None = None, *, shared: bool = False
    ) -> Iterator[tuple[Tensors, Tensors]]:
        """Yield all examples once, in the order of the shard, `size` at a time. Large examples come in
        smaller batches, so that a model's memory is bounded.

        Args:
            size: Examples of a batch.
            only: The wanted batches by number.
            shared: Whether a batch may be a part of the mapped shard, which nobody may write to. It is not
                copied then.
        """
        size = self.bounded(size)
        if self._ragged:
            blocks = zip(_those(torch.split(torch.arange(len(self)), size), only), strict=True)
            yield from ahead(self.take, list(blocks), by_a_thread=self.travels)
            return
        self._settle()
        x, y = each(self._here, self._x), each(self._here, self._y)
        pairs = zip(_those(sliced(x, size), only), _those(sliced(y, size), only), strict=True)
        make = self._shown if shared else self._lent
        yield from ahead(make, list(pairs), by_a_thread=self.travels)

    def bounded(self, size: int) -> int:
        """Return how many examples `in_order` takes at a time, at most `size`."""
        return min(size, max(LARGEST // self._numbers, 1))

    @property
    def ragged(self) -> bool:
        """Whether batches have different shapes, since examples have unequal lengths."""
        return self._ragged

    def take(self, indices: Tensor) -> tuple[Tensors, Tensors]:
        """Return the examples at `indices`, shape [n]."""
        return self.inputs(indices), self.targets(indices)

    def inputs(self, indices: Tensor) -> Tensors:
        """Return the inputs of the examples at `indices`, shape [n]."""
        x = each(lambda column: rows_at(self._here(column), indices), self._x)
        seen = each(self._seen, x, self._features)
        return {**seen, **self._masks(x)} if self._ragged and isinstance(x, dict) else seen

    def targets(self, indices: Tensor) -> Tensors:
        """Return the targets of the examples at `indices`, shape [n]."""
        return each(self._aimed, each(lambda one: rows_at(self._here(one), indices), self._y), self._y_dtype)

    def _masks(self, x: dict[str, Any]) -> dict[str, Tensor]:
        """Return the masks of a batch: int64, 1 for a row and 0 for padding."""
        padded = [one for one in x.values() if isinstance(one, Padded)]
        return {one.mask: one.inside.long().to(self._device) for one in padded if one.mask is not None}

    def _whole(self) -> tuple[Tensors, Tensors]:
        """Return all examples in one batch."""
        if self._ragged:
            return self.take(torch.arange(len(self)))
        self._settle()
        return self._lent(each(self._here, self._x), each(self._here, self._y))

    def _settle(self) -> None:
        """Keep the columns on the GPU if they fit, since all examples will be used."""
        if (kept := self._resident) is not None:
            mine = [*columns_of(self._x), *columns_of(self._y)]
            for column, array in self._sources:
                if any(column is one for one in mine):
                    kept.use(array, column)

    @property
    def travels(self) -> bool:
        """Whether batches are copied from the host to a GPU, since not all columns are there."""
        columns = [self._here(one) for one in (*columns_of(self._x), *columns_of(self._y))]
        there = all(getattr(one, "device", None) == self._device for one in columns)
        return self._device.type != "cpu" and not there

    @property
    def _resident(self) -> Resident | None:
        return resident_on(self._device) if self._device.type != "cpu" else None

    def _here(self, column: Any) -> Any:
        """Return a column on the GPU if it is kept there, else on the host."""
        if (kept := self._resident) is None:
            return column
        array = next((array for one, array in self._sources if one is column), None)
        return column if array is None else kept.of(array, column)

    def part(self, index: int, box: Sequence[slice]) -> tuple[Tensors, Tensors]:
        """Return a box of one example, cut from the last dimensions of all arrays that have enough
        dimensions."""
        if self._ragged:
            raise InputError("a box is cut from examples of one shape; these have unequal lengths")
        x, y = (each(lambda column: cut(column[index], box), columns) for columns in (self._x, self._y))
        return self._lent(x, y)

    def on_cpu(self) -> Batches:
        """Return the same examples on the CPU."""
        other = copy.copy(self)
        other._device = torch.device("cpu")
        return other

    @property
    def stored(self) -> tuple[Tensors, Tensors]:
        """All x and all y as they are stored in the shard."""
        return self._x, self._y

    def _lent(self, x: Tensors, y: Tensors) -> tuple[Tensors, Tensors]:
        """Return examples that a model may overwrite: a model that works in place must not write to the
        mapped shard."""
        seen, aimed = self._shown(x, y)
        return each(_apart, seen, x), each(_apart, aimed, y)

    def _shown(self, x: Tensors, y: Tensors) -> tuple[Tensors, Tensors]:
        """Return examples in the form for a model. What has this form already is not copied."""
        return each(self._seen, x, self._features), each(self._aimed, y, self._y_dtype)

    def _block(self, size: int) -> int:
        if self._ragged:
            return size
        row: int = max(sum(column[:1].nbytes for column in columns_of(self._x)), 1)
        return max(BLOCK_BYTES // row // size, 1) * size

    @property
    def _numbers(self) -> int:
        """How many numbers the inputs of an example have; for ragged ones, of the longest example."""
        columns = columns_of(self._x)
        return max(sum(one.largest if isinstance(one, Uneven) else one[:1].numel() for one in columns), 1)

    def _aimed(self, y: Any, dtype: str) -> Tensor:
        """Return targets in the form for a model, converted a batch at a time on the device."""
        if isinstance(y, Padded):
            # after the conversion, since NaN is not a whole number
            return y.filled(self._aimed(y.rows, dtype))
        aimed: Tensor = y.to(self._device).to(torch.int64 if dtype == "int64" else torch.float32)
        return aimed

    def _seen(self, given: Any, features: Features) -> Tensor:
        x: Tensor = given.filled(given.rows) if isinstance(given, Padded) else given
        x = x.to(self._device)
        if features.scale is not None:
            # not in place: x may be the mapped shard itself
            x = x.to(torch.float32).mul(features.scale)
            return x.add_(features.offset) if features.offset else x
        return x.to(torch.float32 if x.is_floating_point() else torch.int64)


def _pairs(held: Tensors, arrays: Any) -> Iterator[tuple[Tensor, Any]]:
    """Yield the columns that are tensors, each with its source array."""
    pairs = zip(columns_of(held), columns_of(arrays), strict=True)
    return ((column, array) for column, array in pairs if isinstance(column, Tensor))


def _held(array: Any) -> Any:
    return Uneven(array) if isinstance(array, Ragged) else torch.from_numpy(array)


def _apart(tensor: Tensor, source: Tensor) -> Tensor:
    """Return a tensor that shares no memory with its source."""
    return tensor.clone() if tensor.data_ptr() == source.data_ptr() else tensor


def _those(found: Sequence[Any], only: Sequence[int] | None) -> Sequence[Any]:
    return found if only is None else [found[number] for number in only]
