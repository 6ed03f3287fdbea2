"""Ragged arrays: the rows of examples of unequal lengths in one array, and where each example begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mpifl.common import ShardError

OFFSETS = ".offsets"
"""The suffix that turns the name of an array's values into the name of its offsets."""
_RESTORE = "partition again or restore it"


class RaggedForm(NamedTuple):
    """The form of ragged examples in a file: the shape [n, longest, ...], and the dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    ragged: bool = True


@dataclass(frozen=True, eq=False)
class Ragged:
    """n examples, each an array [rows, ...] with its own number of rows.

    An index of several examples copies no rows. A single number gives one example as an array.

    Attributes:
        values: The rows of all examples, and perhaps of others, [m, ...].
        starts: Where each example begins in `values`, int64 [n].
        lengths: The number of rows of each example, int64 [n].
        longest: The largest number of rows that an example may have.
        fill: The value that pads an example in a batch, after its last row.
        mask: The mask's name in the model, 1 for a row and 0 for padding; None makes no mask.
    """

    ragged: ClassVar[bool] = True
    values: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    longest: int
    fill: float = 0
    mask: str | None = None

    @classmethod
    def of(cls, examples: Sequence[Any], **more: Any) -> Ragged:
        """Return arrays [rows, ...] of different lengths as ragged examples."""
        arrays = [np.asarray(one) for one in examples]
        lengths = np.array([len(one) for one in arrays], np.int64)
        return cls.flat(np.concatenate(arrays), lengths, **more)

    @classmethod
    def flat(cls, values: np.ndarray, lengths: np.ndarray, **more: Any) -> Ragged:
        """Return examples of these lengths, given all their rows in order."""
        more.setdefault("longest", max(1, int(lengths.max(initial=1))))
        return cls(values, np.cumsum(lengths) - lengths, lengths, **more)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, int | np.integer):
            start = int(self.starts[at])
            return self.values[start : start + int(self.lengths[at])]
        return replace(self, starts=self.starts[at], lengths=self.lengths[at])

    @property
    def shape(self) -> tuple[int, ...]:
        """Return [n, longest, ...]."""
        return (len(self), self.longest, *self.values.shape[1:])

    @property
    def ndim(self) -> int:
        """Return the number of dimensions, including the one of the examples."""
        return len(self.values.shape) + 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of the values."""
        return self.values.dtype

    @property
    def offsets(self) -> np.ndarray:
        """Return where examples begin and the last one ends in `joined`: int64 [n + 1]."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    @cached_property
    def joined(self) -> np.ndarray:
        """The rows of these examples only, in order, [m, ...]; no copy if they are already stored like
        that."""
        if (self.starts[1:] == self.starts[:-1] + self.lengths[:-1]).all():
            start = int(self.starts[0]) if len(self) else 0
            return self.values[start : start + int(self.lengths.sum())]
        shift = np.repeat(self.starts - self.offsets[:-1], self.lengths)
        return self.values[shift + np.arange(len(shift))]

    @property
    def row_bytes(self) -> int:
        """Return the mean bytes of an example, including its offset."""
        row = math.prod(self.values.shape[1:]) * self.dtype.itemsize
        return 8 + -(-row * int(self.lengths.sum()) // max(1, len(self)))

    def example_at(self, row: int) -> int:
        """Return the example that a row of `joined` belongs to."""
        return int(np.searchsorted(self.offsets, row, side="right")) - 1

    def view(self, dtype: Any) -> Ragged:
        """Return the examples with their bytes read as another dtype."""
        return replace(self, values=self.values.view(dtype))

    def astype(self, dtype: Any, copy: bool = False) -> Ragged:
        """Return the examples in another dtype."""
        return replace(self, values=self.values.astype(dtype, copy=copy))


Column = np.ndarray | Ragged
"""An array [n, ...], or ragged examples."""


def flat(array: Column) -> np.ndarray:
    """Return an array as it is; for ragged examples, return all their rows in order."""
    return array.joined if isinstance(array, Ragged) else array


def form_of(where: str, values: Any, offsets: Any, longest: int) -> RaggedForm:
    """Return the form of ragged examples from the form of their values; raise ShardError if offsets have the
    wrong form."""
    if offsets.dtype != np.int64 or len(offsets.shape) != 1 or not offsets.shape[0]:
        found = f"{offsets.dtype} of shape {list(offsets.shape)}"
        raise ShardError(f"{where}{OFFSETS}: is {found}; it must be int64 [examples + 1]; {_RESTORE}")
    return RaggedForm((offsets.shape[0] - 1, longest, *values.shape[1:]), values.dtype)


def ragged_of(where: str, values: np.ndarray, offsets: np.ndarray, longest: int, **more: Any) -> Ragged:
    """Return ragged examples from values and offsets; raise ShardError if the offsets do not fit the
    values."""
    check_offsets(f"{where}{OFFSETS}", offsets, len(values), longest)
    return Ragged(values, offsets[:-1], np.diff(offsets), longest, **more)


def check_offsets(where: str, offsets: np.ndarray, rows: int, longest: int) -> None:
    """Refuse offsets that do not begin with 0, decrease, do not end at the number of rows, or are too far
    apart."""
    if offsets[0]:
        raise ShardError(f"{where}: begins with {offsets[0]}; it must begin with 0; {_RESTORE}")
    if (falls := offsets[1:] < offsets[:-1]).any():
        at = int(np.argmax(falls))
        raise ShardError(f"{where}: falls from {offsets[at]} to {offsets[at + 1]} at {at + 1}; {_RESTORE}")
    if offsets[-1] != rows:
        raise ShardError(f"{where}: ends with {offsets[-1]}, there are {rows} rows of values; {_RESTORE}")
    if (long := np.diff(offsets) > longest).any():
        at = int(np.argmax(long))
        found = f"example {at} has {offsets[at + 1] - offsets[at]} rows"
        raise ShardError(f"{where}: {found}, the federation has {longest} at most; {_RESTORE}")
