"""Examples of unequal lengths: their rows one after another, and where each begins and ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mpifl.common import ShardError

OFFSETS = ".offsets"
"""What the name of the offsets of an array ends in, behind that of its values."""
_RESTORE = "partition again or restore it"


class RaggedForm(NamedTuple):
    """What a file says of such examples: [n, longest, ...], and their dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    ragged: bool = True


@dataclass(frozen=True, eq=False)
class Ragged:
    """Examples [n], each an array [rows, ...] of as many rows as it has.

    An index along the first axis gives some of the examples, and copies none of their rows; a number gives
    one example, an array.

    Attributes:
        values: The rows of all examples, and perhaps of others, [m, ...].
        starts: Where each example begins in them, int64 [n].
        lengths: How many rows each has, int64 [n].
        longest: The rows that an example has at most.
        fill: What stands behind the last row of an example in a batch.
        mask: What a model calls the mask that is 1 where a batch has a row, and 0 behind; None makes none.
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
        """Put arrays [rows, ...], alike but for their lengths, one after another."""
        arrays = [np.asarray(one) for one in examples]
        lengths = np.array([len(one) for one in arrays], np.int64)
        return cls.flat(np.concatenate(arrays), lengths, **more)

    @classmethod
    def flat(cls, values: np.ndarray, lengths: np.ndarray, **more: Any) -> Ragged:
        """Return examples of these lengths, whose rows follow one another."""
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
        """Return the number of dimensions, that of the examples among them."""
        return len(self.values.shape) + 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of the values."""
        return self.values.dtype

    @property
    def offsets(self) -> np.ndarray:
        """Return where examples begin and the last one ends, if they follow one another: int64 [n + 1]."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    @cached_property
    def joined(self) -> np.ndarray:
        """The rows of these examples alone, one after another, [m, ...]; as they lie where they do so."""
        if (self.starts[1:] == self.starts[:-1] + self.lengths[:-1]).all():
            start = int(self.starts[0]) if len(self) else 0
            return self.values[start : start + int(self.lengths.sum())]
        shift = np.repeat(self.starts - self.offsets[:-1], self.lengths)
        return self.values[shift + np.arange(len(shift))]

    @property
    def row_bytes(self) -> int:
        """Return the bytes of an example in the mean, its offset among them."""
        row = math.prod(self.values.shape[1:]) * self.dtype.itemsize
        return 8 + -(-row * int(self.lengths.sum()) // max(1, len(self)))

    def example_at(self, row: int) -> int:
        """Return the example that one of `joined` belongs to."""
        return int(np.searchsorted(self.offsets, row, side="right")) - 1

    def view(self, dtype: Any) -> Ragged:
        """Return the examples with the same bytes as another dtype."""
        return replace(self, values=self.values.view(dtype))

    def astype(self, dtype: Any, copy: bool = False) -> Ragged:
        """Return the examples in another dtype."""
        return replace(self, values=self.values.astype(dtype, copy=copy))


Column = np.ndarray | Ragged
"""An array [n, ...], or examples of unequal lengths."""


def flat(array: Column) -> np.ndarray:
    """Return an array as it is, of ragged examples the rows of all one after another."""
    return array.joined if isinstance(array, Ragged) else array


def form_of(where: str, values: Any, offsets: Any, longest: int) -> RaggedForm:
    """Return the form of examples by that of their values; raise ShardError if offsets have another."""
    if offsets.dtype != np.int64 or len(offsets.shape) != 1 or not offsets.shape[0]:
        found = f"{offsets.dtype} of shape {list(offsets.shape)}"
        raise ShardError(f"{where}{OFFSETS}: is {found}; it must be int64 [examples + 1]; {_RESTORE}")
    return RaggedForm((offsets.shape[0] - 1, longest, *values.shape[1:]), values.dtype)


def ragged_of(where: str, values: np.ndarray, offsets: np.ndarray, longest: int, **more: Any) -> Ragged:
    """Return examples by their offsets; raise ShardError if these are none of so many values."""
    check_offsets(f"{where}{OFFSETS}", offsets, len(values), longest)
    return Ragged(values, offsets[:-1], np.diff(offsets), longest, **more)


def check_offsets(where: str, offsets: np.ndarray, rows: int, longest: int) -> None:
    """Refuse offsets that do not begin with 0, fall, end elsewhere than the rows do, or are too far apart."""
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
