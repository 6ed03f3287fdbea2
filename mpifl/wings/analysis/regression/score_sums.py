"""What Newton's method needs of the rows: score, information and likelihood, as exact sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mpifl.common import InputError
from mpifl.sums import row_sums
from mpifl.wings.analysis import exact_products as exact
from mpifl.wings.analysis.regression.families import Family, Magnitudes, wide_log

Blocks = Iterable[tuple[Tensor, Tensor]]
"""Columns with the intercept first, float64 of shape [n, p], and outcomes [n]; at most `exact.BLOCK` rows."""
ALONE = 4
"""Sums beside those of columns: of the likelihood, of ones, of weights, and of the weights' logarithms."""
MOST_LOG = 128.0
"""The logarithm of a weight, a float32 above 0, stays below it in magnitude."""


class RowSums(NamedTuple):
    """Sums over all rows.

    Attributes:
        information: X^T V X, shape [p, p].
        score: X^T (y - mu), shape [p].
        squares: The sum of squared residuals.
        likelihood: The sum of the rows' parts of the log-likelihood.
        rows: How many rows there are.
        events: How many events there are, in a model of survival.
        weight: The sum of the rows' weights; None where each row has 1.
        log_weights: The sum of the logarithms of the rows' weights.
    """

    information: Tensor
    score: Tensor
    squares: float
    likelihood: float
    rows: int
    events: int = 0
    weight: float | None = None
    log_weights: float = 0.0


@dataclass(frozen=True)
class ScoreSums:
    """Sums at given coefficients, as whole numbers that add up over silos. A row of weight w counts w times.

    Attributes:
        family: The family of the outcome.
        beta: The coefficients, the intercept first, float64 of shape [p].
        tops: Powers of two above all magnitudes of each column and of the outcome, shape [p + 1].
        reach: A power of two above all means, where the family has it measured; else 1.
        weights: The column that has the rows' weights; None where all are 1.
    """

    family: Family
    beta: Tensor
    tops: Tensor
    reach: float = 1.0
    weights: int | None = None

    @staticmethod
    def words(p: int) -> int:
        """Return how many float64 numbers the sums of p columns are packed into."""
        return exact.words_of(p * p + p + 1 + ALONE)

    def of(self, blocks: Blocks) -> Tensor:
        """Return the packed sums over blocks of rows."""
        p, (information, scored, alone) = len(self.beta), self._tops()
        left_tops = torch.cat([information[0], scored[0]])
        total = torch.zeros(self.words(p) // 2, dtype=torch.int64)
        for columns, y in blocks:
            terms = self.family.terms(predictor(columns, self.beta), y)
            ones = columns[:, :1]
            w = ones if self.weights is None else columns[:, self.weights, None]
            weight, residual = terms.weight * w[:, 0], terms.residual[:, None]
            above = torch.cat([terms.likelihood[:, None] * w, ones, w, wide_log(w[:, 0])[:, None]], 1)
            left = row_sums.Part(columns, weight), row_sums.Part(residual * w)
            right = row_sums.Part(columns), row_sums.Part(residual)
            found = exact.products(left, right, left_tops, scored[1])
            parts = found[:, :p, :p], found[:, p:], exact.products(above, ones, *alone)
            total += torch.cat([part.reshape(-1) for part in parts])
        return exact.packed(total)

    def unpacked(self, words: Tensor) -> RowSums:
        """Return what packed sums over all silos stand for."""
        p, tops = len(self.beta), self._tops()
        sizes = [exact.SLICES * many for many in (p * p, p + 1, ALONE)]
        halves = [torch.split(half, sizes) for half in words.chunk(2)]
        whole = (torch.cat(pair) for pair in zip(*halves, strict=True))
        information, scored, alone = (exact.unpacked(of, *top) for of, top in zip(whole, tops, strict=True))
        likelihood, rows, weight, logs = alone[:, 0].tolist()
        both, score, squares = (information + information.T) / 2, scored[0, :-1], float(scored[0, -1])
        return RowSums(both, score, squares, likelihood, int(rows), weight=weight, log_weights=logs)

    def _tops(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return powers of two above what is multiplied, to the left and to the right: of the information, of
        the score with the squares, and of the other sums."""
        columns, two = self.tops[:-1], self.tops.new_full((1,), 2.0)
        eta = float((self.beta.abs() * columns).sum())
        most = Magnitudes(eta, float(self.tops[-1]), self.reach)
        r, v, ll = (exact.power_above(one) for one in self.family.bounds(most))
        w = 1.0 if self.weights is None else columns[self.weights]
        log = two.new_full((1,), MOST_LOG)
        return (
            (columns * v * w, columns),
            (r * w, torch.cat([columns, r])),
            (torch.cat([ll * w, two, two * w, log]), two),
        )


def columns_of(x: Tensor, centre: Tensor) -> Tensor:
    """Return examples as columns with the intercept first, float64 of shape [n, p], less their centre, shape
    [p] or []."""
    given = x.flatten(1)
    columns = given.new_empty(len(given), given.shape[1] + 1, dtype=torch.float64)
    columns[:, 0], columns[:, 1:] = 1.0, given
    return columns.sub_(centre)


def predictor(columns: Tensor, beta: Tensor) -> Tensor:
    """Return X beta, shape [n], column by column: a matrix product's bits may depend on the other rows."""
    if (found := row_sums.predictor(columns, beta)) is not None:
        return found
    eta = torch.zeros(len(columns), dtype=torch.float64)
    for column, coefficient in zip(columns.T, beta.tolist(), strict=True):
        eta = eta + column * coefficient
    return eta


def reach_of(exponents: Tensor) -> Tensor:
    """Return a power of two above all numbers, shape [1], from the counts of their exponents.

    Raises:
        InputError: a number is too large.
    """
    if exponents[-1] > 0:
        what = "a row's mean or risk has become too large for a number: steps are too long, or a column"
        raise InputError(f"{what} separates outcomes; leave it out, or use [algorithm] ridge or damping")
    return exact.tops_of(exponents)
