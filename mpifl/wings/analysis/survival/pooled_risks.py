"""Sums over risk sets of all silos' rows, as whole numbers that add up over silos."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mpifl.sums import row_sums
from mpifl.wings.analysis import exact_products as exact, predictor, wide_exp
from mpifl.wings.analysis.survival.partial_likelihood import RiskSets
from mpifl.wings.analysis.survival.time_grid import TimeGrid

Blocks = Iterable[tuple[Tensor, Tensor]]
"""Columns with the intercept first, float64 of shape [n, p], and times and events [n, 2]."""


class EventSums(NamedTuple):
    """Sums over all rows with an event, and how many rows there are.

    Attributes:
        eta: The sum of linear predictors.
        columns: The sums of the columns, shape [p].
        rows: The rows, with an event or not.
    """

    eta: float
    columns: Tensor
    rows: int


@dataclass(frozen=True)
class PooledRisks:
    """Sums at given coefficients. A row's risk is r = exp(x beta).

    Attributes:
        grid: The grid of times.
        at: The cells of time that have events, in order; int64 of shape [k].
        beta: The coefficients, float64 of shape [p].
        tops: Powers of two above the magnitudes of each column, shape [p].
        reach: A power of two above all risks, shape [1].
        room: For how many cells there is room; k or more.
    """

    grid: TimeGrid
    at: Tensor
    beta: Tensor
    tops: Tensor
    reach: Tensor
    room: int

    @staticmethod
    def words(p: int, room: int) -> int:
        """Return how many float64 numbers the sums of `of` are packed into."""
        return exact.words_of(2 * room * (p + 1)) + exact.words_of(p + 2)

    def of(self, blocks: Blocks) -> Tensor:
        """Return the packed sums of r and r x by cell, over all rows and over those with an event, and those
        of `EventSums`."""
        sides = torch.zeros(2, exact.SLICES, self.room, len(self.beta) + 1, dtype=torch.int64)
        whole = torch.zeros(exact.SLICES, 1, len(self.beta) + 2, dtype=torch.int64)
        for columns, pairs in blocks:
            eta, place = predictor(columns, self.beta), self.places(pairs)
            risk, event, later = wide_exp(eta)[:, None], pairs[:, 1] > 0, place >= 0
            weighted = torch.cat([risk, risk * columns], 1)
            for side, chosen in enumerate((later, event)):
                sides[side] += exact.cell_sums(weighted[chosen], self._risk_tops(), place[chosen], self.room)
            of_events = torch.cat([eta[:, None], columns], 1) * event[:, None]
            told = torch.cat([torch.ones_like(risk), of_events], 1)
            whole += exact.cell_sums(told, self._event_tops(), torch.zeros_like(place), 1)
        return torch.cat([exact.packed(sides[0]), exact.packed(sides[1]), exact.packed(whole)])

    def unpacked(self, words: Tensor, deaths: Tensor) -> tuple[RiskSets, EventSums]:
        """Return what packed sums over all silos stand for.

        Args:
            deaths: How many events each cell of `at` has.
        """
        half, k, tops = exact.words_of(self.room * (len(self.beta) + 1)), len(self.at), self._risk_tops()
        above = exact.sums_in_cells(words[:half], tops, self.room, above=True)[:k]
        tied = exact.sums_in_cells(words[half : 2 * half], tops, self.room)[:k]
        rows, eta, *columns = exact.sums_in_cells(words[2 * half :], self._event_tops(), 1)[0].tolist()
        sets = RiskSets(deaths, above[:, 0], above[:, 1:], tied[:, 0], tied[:, 1:])
        return sets, EventSums(eta, self.tops.new_tensor(columns), round(rows))

    def second(self, blocks: Blocks, hazard: Tensor, spared: Tensor) -> Tensor:
        """Return the packed sums of r w x x^T, where w is the hazard that has come up to a row's time.

        Args:
            hazard: The cumulative hazard at each cell of `at`, shape [k].
            spared: What rows do not have of it whose event is then, shape [k].
        """
        p, top = len(self.beta), self._weight_top(hazard)
        total = torch.zeros(exact.SLICES, p, p, dtype=torch.int64)
        for columns, pairs in blocks:
            place = self.places(pairs)
            last = place.clamp(min=0)
            come = hazard[last] * (place >= 0) - spared[last] * pairs[:, 1]
            weight = wide_exp(predictor(columns, self.beta)) * come
            total += exact.products([row_sums.Part(columns, weight)], columns, self.tops * top, self.tops)
        return exact.packed(total)

    def unpacked_second(self, words: Tensor, hazard: Tensor) -> Tensor:
        """Return what the packed sums of `second` over all silos stand for, shape [p, p]."""
        found = exact.unpacked(words, self.tops * self._weight_top(hazard), self.tops)
        return (found + found.T) / 2

    def places(self, pairs: Tensor) -> Tensor:
        """Return the last cell of `at` that is not after each row's time; -1 of none."""
        return torch.searchsorted(self.at, self.grid.cells(pairs[:, 0]), right=True) - 1

    def _risk_tops(self) -> Tensor:
        return self.reach * torch.cat([self.tops.new_ones(1), self.tops])

    def _event_tops(self) -> Tensor:
        eta = exact.power_above(float((self.beta.abs() * self.tops).sum()))
        return torch.cat([self.tops.new_full((1,), 2.0), eta, self.tops])

    def _weight_top(self, hazard: Tensor) -> Tensor:
        return self.reach * exact.power_above(float(hazard.max()))
