"""The Gram matrix of all silos' vectors: each worker computes a slice of columns, and sums are exact."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from mpifl.common import ranks_named
from mpifl.wings.robust import column_slices
from mpifl.wings.robust.column_slices import ColumnsPlan, Slices
from mpifl.wings.robust.weight_rules import Matrix
from mpifl.wire import pieces_of

DIGIT = 24
"""Bits of a digit of a sum; int64 can add up 2^39 digits."""
LOWEST, HIGHEST = -13, 12
"""The lowest and highest possible place of a digit: products of float32 numbers are multiples of 2^-298, and
the sum over a block is below 2^273."""


class Digits:
    """The exact sum of float64 matrices [n, n], in digits of fixed places. It is the same in any order.

    Each entry is cut into its own digits, at most four, so that large entries cost small ones no bits.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._places: dict[int, Tensor] = {}

    def add(self, values: Tensor) -> None:
        """Add a matrix of sums of products. Each turn removes a digit, from the highest place to the lowest.

        Raises:
            ValueError: an entry is NaN or Inf, or has digits at places that such a sum cannot have.
        """
        rest = values.clone()
        while peak := float(rest.abs().max()):
            place = (math.frexp(peak)[1] - 1) // DIGIT
            if not (peak < math.inf and LOWEST <= place <= HIGHEST):
                raise ValueError(f"{peak} is not a sum of products of numbers in float32")
            unit = 2.0 ** (DIGIT * place)
            digit = (rest / unit).trunc_()
            self._at(place).add_(digit.long())
            rest.sub_(digit, alpha=unit)

    def _at(self, place: int) -> Tensor:
        if place not in self._places:
            self._places[place] = torch.zeros(self._size, self._size, dtype=torch.int64)
        return self._places[place]

    def encode(self) -> Tensor:
        """Return the digits for sending, flat int64: each place, then its matrix."""
        told = [torch.cat([torch.tensor([place]), at.flatten()]) for place, at in self._places.items()]
        return torch.cat(told) if told else torch.empty(0, dtype=torch.int64)

    def most_bytes(self) -> int:
        """Return the most bytes that `encode` can need."""
        return (HIGHEST - LOWEST + 1) * 8 * (1 + self._size**2)

    def take(self, told: memoryview) -> bool:
        """Add another rank's digits; if they are not valid, add nothing and return False."""
        width = 1 + self._size**2
        if len(told) % (8 * width):
            return False
        rows = np.frombuffer(told, np.int64).reshape(-1, width)
        if not np.isin(rows[:, 0], np.arange(LOWEST, HIGHEST + 1)).all():
            return False
        for place, *at in rows:
            self._at(int(place)).add_(torch.tensor(np.array(at)).view(self._size, self._size))
        return True

    def total(self) -> Matrix:
        """Return the sum, float64."""
        total = torch.zeros(self._size, self._size, dtype=torch.float64)
        for place, at in sorted(self._places.items()):
            total.add_(at.double(), alpha=2.0 ** (DIGIT * place))
        found: Matrix = total.numpy()
        return found


class GramPass(Slices):
    """One rank's part in computing the Gram matrix of several vectors of each silo, taken together.

    An entry is the sum, over blocks of columns, of two rows' inner product in float64. Whatever a silo's
    vector holds, it affects only its own row and column of the matrix.
    """

    FIRST = 1 << 40
    DIGITS = -2
    """The stamp of a rank's digits within the pass."""

    @functools.cached_property
    def _digits(self) -> Digits:
        return Digits(len(self._plans[0].rows))

    def matrix(self) -> Matrix:
        """Return the matrix at the server, after the pass."""
        upper = np.triu(self._digits.total())
        found: Matrix = upper + np.triu(upper, 1).T
        return found

    def lost(self) -> str | None:
        """Compute at the server, if possible, the part of ranks that hang; return why there is no matrix."""
        for rank in self.hanging if self._all_here else ():
            for plan in self._plans:
                self._add(plan, self._shares(plan).get(rank, slice(0, 0)), {})
        suspects = self._suspects or (set() if self._all_here else self.hanging)
        if not suspects:
            return None
        named = ranks_named(sorted(self._transport.origins[rank] for rank in suspects))
        return f"the distances between the silos' vectors cannot be found; suspected: {named}"

    def _step(self, plan: ColumnsPlan, wheres: Mapping[int, slice], count: int) -> None:
        received = self._trade(plan, wheres, count)
        self._add(plan, wheres.get(self._transport.rank, slice(0, 0)), received)

    def _add(self, plan: ColumnsPlan, where: slice, received: Mapping[int, Sequence[Tensor]]) -> None:
        """Add the products of some columns, block by block."""
        rows = self._rows(plan, where, received) if where.start < where.stop else None
        for block in pieces_of(where.stop - where.start, column_slices.BLOCK) if rows else ():
            values = torch.stack([row[block] for row in rows or ()]).double()
            products = values @ values.T
            if bool(products.isfinite().all()):
                self._digits.add(products)
            else:  # received rows were checked, so a row of this rank has changed since it was accepted
                self._suspects.add(self._transport.rank)

    def _hand_over_last(self) -> None:
        super()._hand_over_last()
        self._transport.hand_over(0, [self._digits.encode()], self._stamp(self.DIGITS))

    def _take_share(self, rank: int, record: bytes) -> None:
        super()._take_share(rank, record)
        most = self._digits.most_bytes()
        came = self._transport.next_share(rank, self._stamp(self.DIGITS), most, self._until())
        if came is None:
            self.hanging.add(rank)
        elif not self._digits.take(came):
            self._suspects.add(rank)
