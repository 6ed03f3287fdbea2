"""Where the numbers of columns lie: counts of cells, which are cut again until each holds a single number.

A float32 number is read as a whole number of 32 bits in the same order, as a radix sort reads it (Knuth 1998,
"Sorting and Searching", section 5.2.5). Each cut looks at 8 bits more. So four requests find any quantile
exactly, and the server sees counts over all silos alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

BITS, CUTS = 8, 4
CELLS = 1 << BITS
"""Cells into which a cell is cut."""
MOST_VALUES = 10
"""Different numbers of a column up to which all are counted; also its cells that are cut again, at most."""
NO_CELL = -1
_SIGN = 1 << 31


def keys_of(columns: Tensor) -> Tensor:
    """Return a whole number below 2^32 for each float32 number, in their order; 0 and -0 have the same."""
    bits = columns.contiguous().view(torch.int32).long()
    bits[bits == -_SIGN] = 0
    return torch.where(bits >= 0, bits + _SIGN, -1 - bits)


def number_of(key: int) -> float:
    """Return the number that has a key."""
    bits = key - _SIGN if key >= _SIGN else -1 - key
    return float(torch.tensor([bits], dtype=torch.int32).view(torch.float32))


def counted(keys: Tensor, first: int, columns: int, cut: Sequence[Tensor]) -> Tensor:
    """Return how many numbers lie in each cell, flat int64.

    Args:
        keys: The keys of some columns, shape [n, c].
        first: The number of the first of them.
        columns: How many columns there are.
        cut: The cells that were cut so far, as `Search` has them.
    """
    cells, cell = columns, (first + torch.arange(keys.shape[1])).expand_as(keys).reshape(-1)
    keys = keys.reshape(-1)
    for nth, chosen in enumerate(cut):
        places = torch.full((cells * CELLS,), NO_CELL)
        cells, inside = len(chosen), chosen != NO_CELL
        places[chosen[inside].long()] = torch.arange(cells)[inside]
        cell = places[cell * CELLS + _digit(keys, nth)]
        cell, keys = cell[cell != NO_CELL], keys[cell != NO_CELL]
    return torch.bincount(cell * CELLS + _digit(keys, len(cut)), minlength=cells * CELLS)


def _digit(keys: Tensor, nth: int) -> Tensor:
    return (keys >> (BITS * (CUTS - 1 - nth))) & (CELLS - 1)


class KeyCell(NamedTuple):
    """A cell: the digits that its keys begin with, and how many numbers of the column lie below and in it."""

    digits: int
    below: int
    inside: int


@dataclass
class ColumnCells:
    """What was found of a column.

    Attributes:
        cells: Cells that are not empty, in the order of their numbers.
        whole: Whether they hold all numbers of the column.
    """

    cells: list[KeyCell]
    whole: bool = True

    @property
    def values(self) -> dict[float, int]:
        """After the last cut, how often each number occurs."""
        return {number_of(cell.digits): cell.inside for cell in self.cells}

    def at(self, rank: int) -> KeyCell:
        """Return the cell of the number with a rank, counted from 0."""
        return next(one for one in self.cells if one.below <= rank < one.below + one.inside)


class Search:
    """The server's part: which cells are cut next.

    Attributes:
        columns: What was found of each column.
        counts: How many numbers each column has, after the first cut.
        tops: After the first cut, powers of two above the magnitudes of each column.
        cut: For each cut, places of the cells that are cut again in the counts of the cut before. It is
            filled up with `NO_CELL`, so that its length tells nothing.
    """

    def __init__(self, columns: int, ranks: Callable[[int], Collection[int]]) -> None:
        """Begin.

        Args:
            ranks: Returns, for a number of numbers, the ranks that are searched for.
        """
        self.columns = [ColumnCells([KeyCell(0, 0, 0)]) for _ in range(columns)]
        self.counts: list[int] = []
        self.tops: list[float] = []
        self.cut: list[Tensor] = []
        self._ranks = ranks

    def take(self, counts: Tensor) -> None:
        """Take the counts of the present cells over all silos, flat, and choose what is cut next.

        Of a column with few different numbers all cells are. Of others those that hold a rank that is
        searched for are.
        """
        table = counts.long().reshape(-1, CELLS)
        if not self.cut:
            self.counts = table.sum(1).tolist()
            self.tops = [_top_of(row.nonzero().flatten()) for row in table]
        rows, chosen = enumerate(table.tolist()), list[int]()
        for found, count in zip(self.columns, self.counts, strict=True):
            cells = [one for cell in found.cells for one in _within(cell, *next(rows))]
            found.whole = found.whole and len(cells) <= MOST_VALUES
            if not found.whole:
                ranks = self._ranks(count)
                cells = [
                    (cell, place)
                    for cell, place in cells
                    if any(cell.below <= rank < cell.below + cell.inside for rank in ranks)
                ]
            found.cells = [cell for cell, _ in cells]
            chosen += [place for _, place in cells]
        room = torch.full((len(self.columns) * MOST_VALUES,), NO_CELL, dtype=torch.float64)
        room[: len(chosen)] = torch.tensor(chosen, dtype=torch.float64)
        self.cut.append(room)


def _within(cell: KeyCell, nth: int, counts: Sequence[int]) -> list[tuple[KeyCell, int]]:
    """Return the cells within a cell that are not empty, each with its place in all counts."""
    found, below = [], cell.below
    for digit, count in enumerate(counts):
        if count:
            found.append((KeyCell(cell.digits * CELLS + digit, below, count), nth * CELLS + digit))
        below += count
    return found


def _top_of(digits: Tensor) -> float:
    """Return a power of two above the magnitudes of numbers whose keys begin with these digits, which have
    the sign and 7 of the 8 bits of an exponent."""
    half = CELLS // 2
    largest = int(torch.maximum(digits - half, half - 1 - digits).max()) if len(digits) else 0
    return 2.0 ** (2 * largest + 2 - 127)
