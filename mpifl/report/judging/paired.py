"""Two models on the same rows: how far apart they are, and what of that chance makes of the rows.

Of answers that are right or wrong the test is McNemar's, exact (`chance.by_right_answers`). Of any other
metric it is a bootstrap over the rows, which both models share; p of few rows is of the test of exchanges.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch

from mpifl.common import rng
from mpifl.report.judging.row_figures import RowFigures
from mpifl.report.runs import Difference, chance

DRAWS = 2000
"""Draws of a bootstrap."""
FEW = 50
"""Rows, or groups of rows, below which p is of exchanges: there a bootstrap refuses too often, as 1.96 is
less than the quantile of Student's t."""
EXCHANGES = 5000
"""The most exchanges: up to 12 rows, all of them."""
SAME = 1e-9
"""Differences that are relatively so near are one difference."""
LEAST = 0.5
"""The share of draws in which both models must have a figure."""


def drawn(models: Sequence[RowFigures], seed: int, silo: int, groups: np.ndarray | None = None) -> np.ndarray:
    """Return the figures of models on rows that are drawn with replacement, as many as there are.

    Where rows are of groups, whole groups are drawn, as many as there are (Davison & Hinkley 1997, 3.8).

    All models are looked at on the same draws.

    Args:
        models: What each says of the same rows.
        seed: The job's seed.
        silo: The number of the silo, of which the stream of the draws is derived.
        groups: The group of each row, int64 [rows].

    Returns:
        float64 [DRAWS, models]; NaN where a figure is undefined.
    """
    stream, rows = rng.numpy_stream(seed, "bootstrap over rows", silo), models[0].rows
    place = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    many = int(place.max()) + 1
    found = np.empty((DRAWS, len(models)))
    with _one_thread():
        for nth in range(DRAWS):
            counts = torch.from_numpy(np.bincount(stream.integers(0, many, many), minlength=many)[place])
            found[nth] = [one.value(counts) for one in models]
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute by one thread: a figure of few rows takes a millisecond, which several threads waste."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Exchanged(NamedTuple):
    """The differences of two models with exchanged answers, float64 [ways]; whether these are all ways."""

    differences: np.ndarray
    every: bool

    def p(self, by: float) -> float:
        """Return the two-sided p of a difference. With each way goes its opposite, so both tails are alike.
        Of ways at random the one that was seen is one more (Phipson & Smyth 2010)."""
        beyond = int((~(np.abs(self.differences) < abs(by) * (1 - SAME) - SAME**2)).sum())
        ways, own = len(self.differences), 0 if self.every else 1
        return (beyond + own) / (ways + own)


def exchanged(
    one: RowFigures, other: RowFigures, units: np.ndarray, stream: np.random.Generator
) -> Exchanged:
    """Exchange the answers of two models, for the test of pairs (Fisher 1935) of any metric.

    If the models are alike, their answers to a row may be exchanged, or to all rows of a group. There are 2
    to the power of the rows or groups ways; of more than `EXCHANGES` these are drawn. Where a figure is by
    ranks alone, ranks are exchanged (Bandos, Rockette & Gur 2005): scores of two models have no common scale.

    Args:
        one: What the first model says of some rows.
        other: What the second says of them.
        units: The number from 0 of each row's group, or of the row; it is exchanged whole, [rows].
        stream: What ways are drawn from.
    """
    many = int(units.max()) + 1
    if every := 2**many <= EXCHANGES:
        ways = np.array(list(itertools.product((False, True), repeat=many)))
    else:
        ways = stream.random((EXCHANGES, many)) < 0.5
    one, other = one.by_ranks, other.by_ranks
    with _one_thread():
        each = [
            one.exchanged(other, rows).value() - other.exchanged(one, rows).value() for rows in ways[:, units]
        ]
    return Exchanged(np.array(each), every)


def exchanged_in_mean(
    silos: Sequence[Exchanged], weights: Sequence[float], stream: np.random.Generator
) -> Exchanged:
    """Return the weighted mean of the differences of silos, whose exchanges do not depend on each other.

    Args:
        silos: The exchanges of each silo.
        weights: What each counts.
        stream: What ways of silos with few are drawn from, where there are more than `EXCHANGES` together.
    """
    every = all(one.every for one in silos)
    every = every and math.prod(len(one.differences) for one in silos) <= EXCHANGES
    shares, total = np.asarray(weights) / sum(weights), np.zeros(1 if every else EXCHANGES)
    for share, one in zip(shares, silos, strict=True):
        if every:
            total = np.add.outer(total, share * one.differences).ravel()
        else:
            drawn = stream.choice(one.differences, EXCHANGES) if one.every else one.differences
            total = total + share * drawn
    return Exchanged(total, every)


def fewest(tests: int) -> int:
    """Return how many rows it takes to see a difference at all: the least p of n pairs is 2 / 2^n, and Holm
    multiplies it by the number of tests."""
    return math.ceil(1 + math.log2(tests / chance.LEVEL))


def spread(by: float, differences: np.ndarray, units: int) -> np.ndarray:
    """Return the differences of draws from a difference, spread as draws of n - 1 are: n rows that are drawn
    from n rows spread by (n - 1) / n less in square than other rows would (Rao & Wu 1988)."""
    return by + (differences - by) * math.sqrt(units / max(units - 1, 1))


def by_draws(by: float, differences: np.ndarray, exact: float | None = None) -> Difference | None:
    """Return a difference with the percentile interval and the p of a bootstrap.

    Args:
        by: The difference on the rows as they are.
        differences: That of each draw, [DRAWS].
        exact: The p of exchanges, if there is one. It counts where it is more than that of the draws, so that
            no interval holds 0 where a difference is seen.

    Returns:
        None where fewer than half of the draws have one.
    """
    known = differences[np.isfinite(differences)]
    if not math.isfinite(by) or len(known) < LEAST * len(differences):
        return None
    beyond = min(int((known <= 0).sum()), int((known >= 0).sum()))
    p = min(1.0, 2 * (1 + beyond) / (1 + len(known)))
    if exact is not None:  # which has no floor, as draws have
        p = max(exact, p) if beyond else exact

    def ends(level: float) -> tuple[float, float]:
        low, high = np.quantile(known, (level / 2, 1 - level / 2))
        return float(low), float(high)

    return Difference(by, p, True, ends)
