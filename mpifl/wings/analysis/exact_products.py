"""Sums of products that have the same bits however the rows are cut.

Each number is cut into slices of a few bits (Ozaki et al. 2012, "Error-free transformations of matrix
multiplication", section 3). Slices are whole numbers in float64, so a matrix product of them is exact in any
order. What is left out is below 2^-57 of the largest magnitude of its column. `mpifl/sums/row_sums.c` has the
products and their slices in C, with the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mpifl.sums import row_sums

BITS, SLICES = 19, row_sums.SLICES
BLOCK = 1 << 12
"""Rows of one matrix product: 2 * BITS + 12 bits are below the 53 bits of float64. With 50 columns 2^11 and
2^13 rows took a tenth longer."""
FILLED = 4
"""Columns of a matrix product are filled up to a multiple of it: one of 51 columns took half as long again as
one of 52."""
MOST_ROWS = 1 << 23
"""Rows of a silo whose sums of products stay below 2^63."""
LOWEST, HIGHEST = -126, 129
"""Exponents of float32: a magnitude below 2^e and at least 2^(e-1) has the exponent e."""
EXPONENTS = HIGHEST - LOWEST + 1
WORD = 32
"""Bits of the words in which whole numbers travel, since such add up exactly in float64."""


def exponent_counts(columns: Tensor) -> Tensor:
    """Return how many numbers of each column have each exponent, flat, from shape [n, p]; zeros count
    nowhere, and numbers that are not finite have the highest one."""
    if (found := row_sums.exponent_counts(columns, LOWEST, HIGHEST)) is not None:
        return found.reshape(-1)
    exponents = torch.frexp(columns).exponent.clamp(LOWEST, HIGHEST)
    places = (
        torch.where(columns.isfinite(), exponents, HIGHEST)
        - LOWEST
        + EXPONENTS * torch.arange(columns.shape[1])
    )
    return torch.bincount(places[columns != 0].long(), minlength=EXPONENTS * columns.shape[1])


def tops_of(counts: Tensor) -> Tensor:
    """Return, for each column, the least power of two above all magnitudes, from `exponent_counts`; 1 for a
    column of zeros."""
    table = counts.reshape(-1, EXPONENTS) > 0.5
    places = torch.arange(LOWEST, HIGHEST + 1)
    highest = torch.where(table, places, LOWEST - 1).amax(1)
    return torch.ldexp(torch.ones(len(table), dtype=torch.float64), torch.where(table.any(1), highest, 0))


def power_above(magnitude: float) -> Tensor:
    """Return the least power of two above a magnitude, float64 of shape [1]."""
    return powers_above(torch.tensor([magnitude], dtype=torch.float64))


def powers_above(magnitudes: Tensor) -> Tensor:
    """Return the least powers of two above magnitudes, float64 of the same shape."""
    return torch.exp2(torch.frexp(magnitudes).exponent.double())


def products(
    left: Tensor | Sequence[row_sums.Part],
    right: Tensor | Sequence[row_sums.Part],
    left_tops: Tensor,
    right_tops: Tensor,
) -> Tensor:
    """Return `left.T @ right` in three levels of whole numbers, int64 of shape [SLICES, p, q].

    Args:
        left: At most BLOCK rows, float64 of shape [n, p]; or parts of them, which lie beside each other.
        right: As many rows, shape [n, q]; or parts.
        left_tops: Powers of two above the magnitudes of each column, at all silos; shape [p].
        right_tops: The same of `right`, shape [q].
    """
    sides = [[row_sums.Part(side)] if isinstance(side, Tensor) else side for side in (left, right)]
    found = row_sums.products(sides[0], sides[1], 2.0**BITS / left_tops, 2.0**BITS / right_tops)
    if found is not None:
        return found
    a, b = (
        _filled_up(_side_by_side(side), tops)
        for side, tops in zip(sides, (left_tops, right_tops), strict=True)
    )
    found = torch.zeros(SLICES, a.shape[1], b.shape[1], dtype=torch.int64)
    for nth, slice in enumerate(a):
        beside = slice @ b[: SLICES - nth].flatten(0, 1).T
        found[nth:] += beside.unflatten(1, (-1, b.shape[1])).transpose(0, 1).long()
    return found[:, : len(left_tops), : len(right_tops)]


def cell_sums(numbers: Tensor, tops: Tensor, cell: Tensor, cells: int) -> Tensor:
    """Return the sums of each cell's rows in whole numbers, int64 of shape [SLICES, cells, q].

    Args:
        numbers: float64 of shape [n, q].
        tops: Powers of two above the magnitudes of each column, at all silos; shape [q].
        cell: The cell of each row, shape [n].
    """
    found = torch.zeros(SLICES, cells, numbers.shape[1], dtype=torch.int64)
    return found.index_add_(1, cell, slices(numbers, tops).long())


def packed(levels: Tensor) -> Tensor:
    """Return whole numbers as float64 words, two for each number, flat."""
    return torch.stack([levels >> WORD, levels & ((1 << WORD) - 1)]).double().reshape(-1)


def words_of(numbers: int) -> int:
    """Return the length of the words for so many products."""
    return 2 * SLICES * numbers


def whole_numbers(words: Tensor, *shape: int) -> np.ndarray:
    """Return the whole numbers that sums of words over silos stand for, as Python's, in a shape."""
    high, low = np.vectorize(int, otypes=[object])(words.numpy()).reshape(2, *shape)
    found: np.ndarray = high * (1 << WORD) + low
    return found


def unpacked(words: Tensor, left_tops: Tensor, right_tops: Tensor) -> Tensor:
    """Return the products, float64 of shape [p, q], from sums of words over silos.

    The sum of all slices is a whole number, which is rounded once.
    """
    levels = whole_numbers(words, SLICES, len(left_tops), len(right_tops))
    whole = sum(levels[level] * (1 << BITS * (SLICES - 1 - level)) for level in range(SLICES))
    scaled = torch.from_numpy(np.asarray(whole, dtype=np.float64))
    return scaled * 2.0 ** (-BITS * (SLICES + 1)) * left_tops[:, None] * right_tops


def sums_in_cells(words: Tensor, tops: Tensor, cells: int, *, above: bool = False) -> Tensor:
    """Return what sums of words of `cell_sums` over silos stand for, each rounded once; float64 of shape
    [cells, q]. With `above`, each is the sum over a cell and all cells after it."""
    levels = whole_numbers(words, SLICES, cells, len(tops))
    whole = sum(levels[level] * (1 << BITS * (SLICES - 1 - level)) for level in range(SLICES))
    if above:
        whole = np.flip(np.cumsum(np.flip(whole, 0), 0), 0)
    return torch.from_numpy(np.asarray(whole, dtype=np.float64)) * 2.0 ** (-BITS * SLICES) * tops


def slices(numbers: Tensor, tops: Tensor) -> Tensor:
    """Return the leading slices of numbers, the highest first, float64 of shape [SLICES, n, q]; whole numbers
    of at most BITS bits."""
    return _by_column(numbers, tops, len(tops)).transpose(1, 2)


def _side_by_side(parts: Sequence[row_sums.Part]) -> Tensor:
    """Return all columns times their weights, shape [n, p]. Each lies in one piece, as slices are cut
    fastest."""
    whole = (one.numbers if one.weights is None else one.numbers * one.weights[:, None] for one in parts)
    return torch.cat([one.T for one in whole]).T


def _filled_up(numbers: Tensor, tops: Tensor) -> Tensor:
    """Return slices by column, with columns of zeros up to a multiple of FILLED."""
    return _by_column(numbers, tops, -(-len(tops) // FILLED) * FILLED)


def _by_column(numbers: Tensor, tops: Tensor, width: int) -> Tensor:
    """Return slices of shape [SLICES, width, n]; columns after the last one are zeros."""
    found = numbers.new_empty(SLICES, width, len(numbers))
    found[:, len(tops) :] = 0.0
    rest = (numbers.T * (2.0**BITS / tops)[:, None]).contiguous()
    for nth, slice in enumerate(found[:, : len(tops)]):
        if nth:
            rest.mul_(2.0**BITS)
        torch.round(rest, out=slice)
        rest.sub_(slice)
    return found
