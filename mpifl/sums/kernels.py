"""The inner loops of aggregation: fused in C if there is a compiler, else in tensor operations.

`common/machine/native.py` builds the C file beside this one. Both ways give the same bits. Only the time
depends on the compiler.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mpifl.common.machine import native

SOURCE = Path(__file__).with_name("kernels.c")
PIECE = 1 << 16
"""Elements that tensor operations handle at a time: 512 KiB of float64, which stay in the cache."""
ROWS = 128
"""The most rows that `between` takes."""


def peak(vector: Tensor) -> float:
    """Return the largest magnitude in a tensor of at least one element, NaN if it holds NaN."""
    library = compiled()
    if library is not None and _plain(vector):
        return float(library.mpifl_peak(_at(vector), vector.numel()))
    low, high = torch.aminmax(vector)
    return max(-float(low), float(high))


def add(total: Tensor, vector: Tensor, weight: float, anchor: float, *, fresh: bool) -> None:
    """Add weight * vector to a float64 vector, rounded by adding and subtracting `anchor`.

    Args:
        total: The sum so far, shape [n]; uninitialized if `fresh`.
        vector: The summand, float32 or float64, shape [n].
        anchor: One and a half times a power of two; see `exact`.
        fresh: Whether this is the first summand.
    """
    library = compiled()
    if library is not None and total.is_cpu and _plain(vector):
        library.mpifl_add(_at(total), _at(vector), weight, anchor, int(fresh), len(total))
    else:
        _add_by_tensors(total, vector, weight, anchor, fresh=fresh)


def _add_by_tensors(total: Tensor, vector: Tensor, weight: float, anchor: float, *, fresh: bool) -> None:
    """Do the same as `add` by tensor operations."""
    cut = PIECE if total.is_cpu else max(len(total), 1)  # on a GPU each call costs the same, however long
    piece = torch.empty(min(cut, len(total)), dtype=torch.float64, device=total.device)
    for into, part in zip(torch.split(total, cut), torch.split(vector, cut), strict=True):
        rounded = piece[: len(part)].copy_(part).mul_(weight).add_(anchor).sub_(anchor)
        if fresh:
            into.copy_(rounded)
        else:
            into.add_(rounded)


def add_rounded(total: Tensor, vector: Tensor, scale: float) -> None:
    """Add scale * vector modulo 2^64, each product rounded to a whole number, ties to even.

    Args:
        total: The sum so far, int64 on the CPU, shape [n].
        vector: The summand, float32 or float64 on the CPU, shape [n].
        scale: The factor; the products are below 2^62 in magnitude.
    """
    library = compiled()
    if library is not None and _plain(vector):
        library.mpifl_add_rounded(_at(total), _at(vector), scale, len(total))
        return
    for into, part in zip(torch.split(total, PIECE), torch.split(vector, PIECE), strict=True):
        into.add_(part.double().mul_(scale).round_().long())


@dataclass(frozen=True)
class Parts:
    """The parts that add up to one window of an exact sum.

    Attributes:
        vectors: Each of shape [n]: a sum (float64), or a summand before weighting and rounding (float32).
        weights: The weight of each summand; 0 for a sum.
        anchor: See `exact`.
    """

    vectors: Sequence[Tensor]
    weights: Sequence[float]
    anchor: float

    def cut(self, where: slice) -> Parts:
        """Return a slice of all vectors."""
        return Parts([vector[where] for vector in self.vectors], self.weights, self.anchor)

    def sum(self) -> Tensor:
        """Return the sum, float64, by tensor operations."""
        summands = (
            vector.double().mul_(weight).add_(self.anchor).sub_(self.anchor) if weight else vector
            for vector, weight in zip(self.vectors, self.weights, strict=True)
        )
        return functools.reduce(torch.add, summands)


def total(window: Parts) -> Tensor:
    """Return the sum of the parts of a window, at least one: float64, shape [n]."""
    library = compiled()
    if library is None:
        return window.sum()
    found = torch.empty(len(window.vectors[0]), dtype=torch.float64)
    vectors, weights = _addresses(window.vectors), _reals(window.weights)
    library.mpifl_sum(_at(found), vectors, weights, len(window.vectors), window.anchor, len(found))
    return found


def mean(out: Tensor, windows: Sequence[Parts], scale: float) -> None:
    """Write scale * (sum over windows, in order, of the sum of their parts) into a vector, shape [n].

    Args:
        out: The result, float32 or float64.
        windows: At least one window, each with at least one part.
        scale: The factor of the sum, applied before the result is rounded.
    """
    library = compiled()
    if library is not None and out.is_cpu and out.dtype == torch.float32:
        _mean_compiled(library, out, windows, scale)
        return
    for start in range(0, len(out), PIECE):
        where = slice(start, start + PIECE)
        out[where] = functools.reduce(torch.add, [window.cut(where).sum() for window in windows]) * scale


def _mean_compiled(library: Any, out: Tensor, windows: Sequence[Parts], scale: float) -> None:
    vectors = [vector for window in windows for vector in window.vectors]
    weights = [weight for window in windows for weight in window.weights]
    library.mpifl_mean(
        _at(out),
        _addresses(vectors),
        _reals(weights),
        (ctypes.c_int64 * len(windows))(*(len(window.vectors) for window in windows)),
        _reals([window.anchor for window in windows]),
        len(windows),
        scale,
        len(out),
    )


def between(rows: Sequence[Tensor], network: Tensor, first: int, last: int) -> Tensor | None:
    """Return, for each column, the mean of its values number `first` to `last` - 1 in ascending order.

    Return None without the compiled loop.

    Args:
        rows: At most `ROWS` contiguous vectors on the CPU, float32, shape [n] each.
        network: Comparators of a sorting network for as many values as rows, int32, shape [comparators, 2].
        first: The first sorted value that counts, from 0.
        last: The first sorted value after these.
    """
    if (library := compiled()) is None:
        return None
    found = torch.empty(len(rows[0]))
    sizes = len(network), first, last, len(found)
    library.mpifl_between(_at(found), _addresses(rows), len(rows), _at(network), *sizes)
    return found


@functools.cache
def compiled() -> Any:
    """Return the library of compiled loops, or None if there is none."""
    if (library := native.library(SOURCE)) is None:
        return None
    pointer, real, whole = ctypes.c_void_p, ctypes.c_double, ctypes.c_int64
    library.mpifl_peak.argtypes, library.mpifl_peak.restype = [pointer, whole], ctypes.c_float
    library.mpifl_add.argtypes = [pointer, pointer, real, real, whole, whole]
    library.mpifl_mean.argtypes = [pointer, pointer, pointer, pointer, pointer, whole, real, whole]
    library.mpifl_add_rounded.argtypes = [pointer, pointer, real, whole]
    library.mpifl_add_rounded.restype = None
    library.mpifl_between.argtypes = [pointer, pointer, whole, pointer, whole, whole, whole, whole]
    library.mpifl_between.restype = None
    library.mpifl_sum.argtypes = [pointer, pointer, pointer, whole, real, whole]
    library.mpifl_add.restype = library.mpifl_sum.restype = library.mpifl_mean.restype = None
    return library


def _plain(vector: Tensor) -> bool:
    """Return whether the compiled loops can read a tensor as a summand."""
    return vector.is_cpu and vector.dtype == torch.float32 and vector.is_contiguous()


def _at(vector: Tensor) -> int:
    return vector.data_ptr()


def _addresses(vectors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * len(vectors))(*map(_at, vectors))


def _reals(values: Sequence[float]) -> Any:
    return (ctypes.c_double * len(values))(*values)
