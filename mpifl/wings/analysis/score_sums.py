"""What Newton's method needs of the rows: score, information and likelihood, as exact sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mpifl.wings.analysis import exact_products as exact
from mpifl.wings.analysis.families import Family

Blocks = Iterable[tuple[Tensor, Tensor]]
"""Columns with the intercept first, float64 of shape [n, p], and outcomes [n]; at most `exact.BLOCK` rows."""


class RowSums(NamedTuple):
    """Sums over all rows.

    Attributes:
        information: X^T V X, shape [p, p].
        score: X^T (y - mu), shape [p].
        squares: The sum of squared residuals.
        likelihood: The sum of the rows' parts of the log-likelihood.
        rows: How many rows there are.
        events: How many events there are, in a model of survival.
    """

    information: Tensor
    score: Tensor
    squares: float
    likelihood: float
    rows: int
    events: int = 0


@dataclass(frozen=True)
class ScoreSums:
    """Sums at given coefficients, as whole numbers that add up over silos.

    Attributes:
        family: The family of the outcome.
        beta: The coefficients, the intercept first, float64 of shape [p].
        tops: Powers of two above all magnitudes of each column and of the outcome, shape [p + 1].
    """

    family: Family
    beta: Tensor
    tops: Tensor

    @staticmethod
    def words(p: int) -> int:
        """Return how many float64 numbers the sums of p columns are packed into."""
        return exact.words_of(p * p + p + 3)

    def of(self, blocks: Blocks) -> Tensor:
        """Return the packed sums over blocks of rows."""
        columns_top, (r, v, ll), two = self.tops[:-1], self._row_tops(), self.tops.new_full((1,), 2.0)
        total = torch.zeros(self.words(len(self.beta)) // 2, dtype=torch.int64)
        for columns, y in blocks:
            terms = self.family.terms(predictor(columns, self.beta), y)
            weighted, ones = columns * terms.weight[:, None], columns[:, :1]
            residual, likelihood = terms.residual[:, None], terms.likelihood[:, None]
            beside, above = torch.cat([columns, residual], 1), torch.cat([likelihood, ones], 1)
            parts = (
                exact.products(weighted, columns, columns_top * v, columns_top),
                exact.products(residual, beside, r, torch.cat([columns_top, r])),
                exact.products(above, ones, torch.cat([ll, two]), two),
            )
            total += torch.cat([part.reshape(-1) for part in parts])
        return exact.packed(total)

    def unpacked(self, words: Tensor) -> RowSums:
        """Return what packed sums over all silos stand for."""
        columns_top, (r, v, ll), two = self.tops[:-1], self._row_tops(), self.tops.new_full((1,), 2.0)
        p = len(self.beta)
        sizes = [exact.SLICES * many for many in (p * p, p + 1, 2)]
        halves = [torch.split(half, sizes) for half in words.chunk(2)]
        first, second, third = (torch.cat(pair) for pair in zip(*halves, strict=True))
        information = exact.unpacked(first, columns_top * v, columns_top)
        scored = exact.unpacked(second, r, torch.cat([columns_top, r]))[0]
        likelihood, rows = exact.unpacked(third, torch.cat([ll, two]), two)[:, 0].tolist()
        return RowSums(
            (information + information.T) / 2, scored[:-1], float(scored[-1]), likelihood, int(rows)
        )

    def _row_tops(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return powers of two above all residuals, weights and parts of the likelihood, shape [1] each."""
        eta = float((self.beta.abs() * self.tops[:-1]).sum())
        r, v, ll = (exact.power_above(one) for one in self.family.bounds(eta, float(self.tops[-1])))
        return r, v, ll


def predictor(columns: Tensor, beta: Tensor) -> Tensor:
    """Return X beta, shape [n], column by column: a matrix product's bits may depend on the other rows."""
    eta = torch.zeros(len(columns), dtype=torch.float64)
    for column, coefficient in zip(columns.T, beta.tolist(), strict=True):
        eta = eta + column * coefficient
    return eta
