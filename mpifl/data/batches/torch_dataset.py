"""A split as a torch `Dataset`, for a user's own training loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NoReturn

import torch
from torch.utils.data import Dataset

from mpifl.common import InputError
from mpifl.data import Tensors, each
from mpifl.data.batches.batches import Batches


class Examples(Dataset[tuple[Tensors, Tensors]]):
    """The examples of a split, one at a time: (x, y) as in a batch but without the batch dimension, on the
    CPU.

    torch's DataLoader makes the same batches from them as mpifl. Its workers must be forked.

    Attributes:
        x, y: All examples as they are stored: tensors of shape [n, ...], or dicts of them by name. Do not
            write to them. They are mapped, so unused parts are never read.
    """

    def __init__(self, batches: Batches) -> None:
        self._batches = batches.on_cpu()
        self.x, self.y = self._batches.stored

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._batches)

    def __getitem__(self, index: int) -> tuple[Tensors, Tensors]:
        """Return an example."""
        [example] = self.__getitems__([index])
        return example

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensors, Tensors]]:
        """Return several examples, gathered at once; a DataLoader calls this for a batch."""
        x, y = self._batches.take(torch.arange(len(self))[torch.as_tensor(indices)])  # -1 is the last
        return [(each(itemgetter(i), x), each(itemgetter(i), y)) for i in range(len(indices))]

    def in_order(self, size: int, *, shared: bool = False) -> Iterator[tuple[Tensors, Tensors]]:
        """Yield all examples once, in the shard's order, at most `size` at a time.

        With `shared` they may be parts of the mapped shard, which nobody may write to, and not copies.
        """
        return self._batches.in_order(size, shared=shared)

    def cut(self, index: int, box: Sequence[slice]) -> tuple[Tensors, Tensors]:
        """Return a part of an example, and read only that part.

        Args:
            index: The example's number.
            box: Slices of the last dimensions, such as the pixels of an image. Arrays with fewer dimensions,
                such as a class for a volume, stay whole.
        """
        return self._batches.part(index, box)

    def __reduce__(self) -> NoReturn:
        """Refuse a copy to a process that was not forked, since mapped memory would be copied whole."""
        to_do = "give DataLoader multiprocessing_context='fork', or num_workers=0"
        raise InputError(
            f"silo.split: its examples are mapped memory, which only forked workers share; {to_do}"
        )
