"""The inner loops of exact sums over rows, in C if there is a compiler.

`common/machine/native.py` builds the C file beside this one. A function returns None where there is no
compiled loop for what it is given: its caller then takes tensor operations, which give the same bits.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mpifl.common.machine import native

SOURCE = Path(__file__).with_name("row_sums.c")
LEVELS = 8
"""What `power_sums` adds up of a column: three slices, and their products by five levels."""
SLICES = 3
LEAST = 1 << 21
"""Products of two numbers that are worth a thread of their own: a third of a millisecond."""
COLUMN = np.dtype([("numbers", "u8"), ("weights", "u8"), ("stride", "i8"), ("scale", "f8")])
"""A column: the addresses of numbers and weights, the step from row to row, and the scale."""


class Part(NamedTuple):
    """Columns of a matrix.

    Attributes:
        numbers: Shape [n, p].
        weights: What each row is multiplied by, shape [n]; None: by 1.
    """

    numbers: Tensor
    weights: Tensor | None = None


def power_sums(numbers: Tensor, scale: Tensor) -> Tensor | None:
    """Return the sums of the slices of numbers and of the products of two slices, int64 [LEVELS, c].

    A slice has 19 bits.

    Args:
        numbers: Shape [n, c]; the loop reads float32 on the CPU, each row in one piece.
        scale: What brings each column to 2^19 at most in magnitude, powers of two, float64 of shape [c].
    """
    library, (rows, columns) = compiled(), numbers.shape
    in_rows = numbers.is_cpu and numbers.dtype == torch.float32 and (numbers.stride(1) == 1 or columns == 1)
    if library is None or not in_rows:
        return None
    found, scale = torch.zeros(LEVELS, columns, dtype=torch.int64), scale.contiguous()
    library.mpifl_power_sums(_at(found), _at(numbers), numbers.stride(0), _at(scale), columns, rows)
    return found


def products(
    left: Sequence[Part], right: Sequence[Part], left_scale: Tensor, right_scale: Tensor
) -> Tensor | None:
    """Return the sums of products of two slices by their level, int64 [SLICES, p, q].

    A slice has 19 bits. The loop reads float64 on the CPU.

    Args:
        left: What lies beside each other: n rows, p columns in all.
        right: The same, n rows and q columns.
        left_scale: What brings each column to 2^19 at most in magnitude, powers of two, float64 of shape [p].
        right_scale: The same of `right`, shape [q].
    """
    library, rows = compiled(), len(left[0].numbers)
    if library is None or not all(map(_readable, (*left, *right))):
        return None
    p, q = len(left_scale), len(right_scale)
    a, b = _columns(left, left_scale), _columns(right, right_scale)
    threads = max(min(torch.get_num_threads(), rows * p * q // LEAST), 1)
    found = torch.zeros(threads, SLICES, p, q, dtype=torch.int64)

    def add_up(nth: int) -> None:
        some = rows * nth // threads, rows * (nth + 1) // threads
        library.mpifl_products(_at(found[nth]), a.ctypes.data, p, b.ctypes.data, q, *some)

    others = [threading.Thread(target=add_up, args=(nth,)) for nth in range(1, threads)]
    for thread in others:
        thread.start()
    add_up(0)
    for thread in others:
        thread.join()
    return found[0] if threads == 1 else found.sum(0)


def predictor(columns: Tensor, beta: Tensor) -> Tensor | None:
    """Return columns @ beta, float64 of shape [n], added up column by column with each step rounded.

    Args:
        columns: Shape [n, p]; the loop reads float64 on the CPU.
        beta: float64 of shape [p].
    """
    if (library := compiled()) is None or not _readable(Part(columns)):
        return None
    found, beta = columns.new_empty(len(columns)), beta.contiguous()
    library.mpifl_predictor(_at(found), _at(columns), *columns.stride(), _at(beta), len(beta), len(columns))
    return found


def exponent_counts(columns: Tensor, lowest: int, highest: int) -> Tensor | None:
    """Return how many numbers of each column have each exponent, int64 of shape [p, highest - lowest + 1].

    A magnitude below 2^e and at least 2^(e-1) has the exponent e. Exponents beyond the ends count there, and
    so do numbers that are not finite. Zeros count nowhere.

    Args:
        columns: Shape [n, p]; the loop reads float64 on the CPU.
        lowest: The lowest exponent that has a place.
        highest: The highest one.
    """
    if (library := compiled()) is None or not _readable(Part(columns)):
        return None
    (rows, p), found = columns.shape, torch.zeros(columns.shape[1], highest - lowest + 1, dtype=torch.int64)
    sizes = *columns.stride(), p, rows
    library.mpifl_exponents(_at(found), _at(columns), *sizes, lowest, highest)
    return found


@functools.cache
def compiled() -> Any:
    """Return the library of compiled loops, or None if there is none."""
    if (library := native.library(SOURCE)) is None:
        return None
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    library.mpifl_power_sums.argtypes = [pointer, pointer, whole, pointer, whole, whole]
    library.mpifl_products.argtypes = [pointer, pointer, whole, pointer, whole, whole, whole]
    library.mpifl_predictor.argtypes = [pointer, pointer, whole, whole, pointer, whole, whole]
    library.mpifl_exponents.argtypes = [pointer, pointer, *[whole] * 6]
    library.mpifl_exponents.restype = None
    library.mpifl_power_sums.restype = library.mpifl_products.restype = library.mpifl_predictor.restype = None
    return library


def _readable(part: Part) -> bool:
    """Return whether the loops of products can read a part."""
    by_one = part.weights is None or (part.weights.dtype == torch.float64 and part.weights.is_contiguous())
    return part.numbers.is_cpu and part.numbers.dtype == torch.float64 and by_one


def _columns(parts: Sequence[Part], scale: Tensor) -> np.ndarray:
    """Return the columns of parts as COLUMN."""
    found, at = np.zeros(len(scale), COLUMN), 0
    for numbers, weights in parts:
        own = found[at : at + numbers.shape[1]]
        step = numbers.stride(1) * numbers.element_size()
        own["numbers"] = _at(numbers) + step * np.arange(len(own))
        own["weights"] = 0 if weights is None else _at(weights)
        own["stride"] = numbers.stride(0)
        at += len(own)
    assert at == len(scale), "each column has a scale"
    found["scale"] = scale.numpy()
    return found


def _at(tensor: Tensor) -> int:
    return tensor.data_ptr()
