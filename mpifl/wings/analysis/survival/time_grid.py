"""Times as cells of a grid that all silos share, so that counts of cells add up over silos."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mpifl.common import InputError
from mpifl.learning.tasks import times_and_events
from mpifl.silo import Silo
from mpifl.wings.analysis import ROUNDED, exact_products as exact

CELLS = 1 << 14
"""Steps of a grid at most. A time of 0 has a cell before them."""


@dataclass(frozen=True)
class TimeGrid:
    """A grid of times: cell k has the times above (k - 1) * step, up to k * step.

    Attributes:
        step: The width of a cell, in the unit of the times.
    """

    step: float

    @classmethod
    def below(cls, top: float) -> TimeGrid:
        """Return the grid with the least step of 1, 2 or 5 times a power of ten that reaches `top`."""
        least = top / CELLS
        power = 10.0 ** math.floor(math.log10(least))
        return cls(next(one * power for one in (1, 2, 5, 10) if one * power >= least))

    def cells(self, times: Tensor) -> Tensor:
        """Return the cells of times, int64 of shape [n].

        A time at the end of a cell lies in it, however float32 has rounded it.

        Raises:
            InputError: a time lies beyond the grid.
        """
        found = torch.ceil(times.double() / self.step * (1 - ROUNDED))
        if not (found <= CELLS).all():  # a step may be too small to divide by
            what = f"a time is beyond {CELLS:,} steps; use a larger step"
            raise InputError(f"[algorithm] step = {self.step:g}: {what}")
        return found.long()

    def time(self, cell: int) -> float:
        """Return the end of a cell, with the 7 digits that a float32 has."""
        return float(f"{cell * self.step:.7g}")


def pairs_of(silo: Silo, split: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a split in blocks: the examples, and their times and events, float64 of shape [n, 2].

    Raises:
        InputError: a time is missing or infinite.
    """
    for x, y in silo.split(split).in_order(exact.BLOCK):
        pairs = times_and_events(y).double()
        if not pairs.isfinite().all():
            raise InputError("a time is missing or infinite; correct it, or leave the row out")
        yield x, pairs
