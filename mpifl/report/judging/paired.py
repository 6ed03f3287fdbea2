"""Two models on the same rows: how far apart they are, and what of that chance makes of the rows.

Of answers that are right or wrong the test is McNemar's, exact (`chance.by_right_answers`). Of any other
metric it is a bootstrap over the rows, which both models share; p of few rows is of the exact test of
exchanges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from mpifl.common import rng
from mpifl.report.judging.row_figures import RowFigures
from mpifl.report.runs import Difference, chance

DRAWS = 2000
"""Draws of a bootstrap."""
FEW = 20
"""Rows below which p is of exchanges: there percentiles of a bootstrap are a tenth too narrow and more, as
1.96 sqrt((n - 1) / n) is against Student's t, and p has no floor."""
EXCHANGES = 5000
"""The most exchanges: up to 12 rows, all of them."""
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


def by_exchanges(
    silos: Sequence[Sequence[RowFigures]],
    weights: Sequence[float],
    stream: np.random.Generator,
    units: Sequence[np.ndarray],
) -> float:
    """Return the two-sided p of the exact test of pairs (Fisher 1935), for any metric.

    If the models are alike, their answers to a row may be exchanged, or to all rows of a group. p is by all
    exchanges, 2 to the power of the rows or groups, or by `EXCHANGES` at random.

    Args:
        silos: The figures of two models on the rows of each silo.
        weights: What each silo counts in the mean of differences.
        stream: What exchanges are drawn from where there are more.
        units: By silo, the number from 0 of each row's group, or of the row; it is exchanged whole, [rows].
    """
    from scipy import stats  # a second, which only few rows need

    ends = np.cumsum([int(of.max()) + 1 for of in units])

    def difference(first: np.ndarray, _: np.ndarray) -> float:
        each = []
        for (one, other, *_rest), own, of in zip(silos, np.split(first > 0, ends[:-1]), units, strict=True):
            rows = own[of]
            each.append(one.exchanged(other, rows).value() - other.exchanged(one, rows).value())
        return float(np.average(each, weights=weights))

    models = (np.zeros(ends[-1]), np.ones(ends[-1]))
    with _one_thread():
        found = stats.permutation_test(
            models, difference, permutation_type="samples", n_resamples=EXCHANGES, random_state=stream
        )
    return float(found.pvalue)


def can_tell(rows: int, tests: int) -> bool:
    """Tell whether a difference could be seen in so many rows at all: the least p of pairs is 2 / 2^rows, and
    Holm multiplies it by the number of tests."""
    return tests * 2.0 ** (1 - rows) <= chance.LEVEL


def by_draws(by: float, differences: np.ndarray, exact: float | None = None) -> Difference | None:
    """Return a difference with the percentile interval and the p of a bootstrap.

    Args:
        by: The difference on the rows as they are.
        differences: That of each draw, [DRAWS].
        exact: The p of an exact test, if there is one.

    Returns:
        None where fewer than half of the draws have one.
    """
    known = differences[np.isfinite(differences)]
    if not math.isfinite(by) or len(known) < LEAST * len(differences):
        return None
    beyond = min(int((known <= 0).sum()), int((known >= 0).sum()))
    p = min(1.0, 2 * (1 + beyond) / (1 + len(known))) if exact is None else exact

    def ends(level: float) -> tuple[float, float]:
        low, high = np.quantile(known, (level / 2, 1 - level / 2))
        return float(low), float(high)

    return Difference(by, p, True, ends)
