"""Times as cells of a grid that all silos share, so that counts of cells add up over silos."""

from __future__ import annotations

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

STEPS = [float(f"{one}e{power}") for power in range(-43, 36) for one in (1, 2, 5)]
"""The steps that are taken by default. They reach all times that a float32 can be."""


@dataclass(frozen=True)
class TimeGrid:
    """A grid of times: cell k has the times above (k - 1) * step, up to k * step.

    Attributes:
        step: The width of a cell, in the unit of the times.
    """

    step: float

    @classmethod
    def reaching(cls, counts: Tensor) -> TimeGrid:
        """Return the grid with the least of `STEPS` that reaches all times, from `step_counts`; the step is 1
        if all are 0."""
        places = (counts > 0.5).nonzero().flatten()
        return cls(STEPS[int(places[-1])] if len(places) else 1.0)

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


def step_counts(times: Tensor) -> Tensor:
    """Return for each of `STEPS` how many times, shape [n], have it as the least that reaches them. Zeros
    count nowhere.

    The longest time alone decides on the step, and powers of two above the times would not tell it.
    """
    reach = torch.tensor(STEPS, dtype=torch.float64) * CELLS * (1 + ROUNDED / 2)
    return torch.bincount(torch.searchsorted(reach, times[times > 0].double()), minlength=len(STEPS))


def pairs_of(silo: Silo, split: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a split in blocks: the examples, and their times and events, float64 of shape [n, 2].

    Raises:
        InputError: a time is missing or infinite.
    """
    for x, y in silo.split(split).in_order(exact.BLOCK, shared=True):
        pairs = times_and_events(y).double()
        if not pairs.isfinite().all():
            raise InputError("a time is missing or infinite; correct it, or leave the row out")
        yield x, pairs
