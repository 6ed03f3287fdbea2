"""The log-rank test between groups, from counts over all times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class LogRank(NamedTuple):
    """The result of a test.

    Attributes:
        statistic: Chi-squared.
        degrees: Its degrees of freedom.
        p: How likely it is to be as large where no group differs.
    """

    statistic: float
    degrees: int
    p: float


def log_rank(counts: np.ndarray) -> LogRank | None:
    """Return the log-rank test (Mantel 1966; Peto & Peto 1972) of groups; None of fewer than two.

    Groups without a row at risk at an event are left out, as R's `survdiff` does.

    Args:
        counts: Events, and rows censored, in each cell of time; float64 of shape [groups, 2, cells].
    """
    from scipy import stats

    events = counts[:, 0]
    at_risk = counts.sum(1)[:, ::-1].cumsum(1)[:, ::-1]
    d, n = events.sum(0), at_risk.sum(0)
    at, compared = d > 0, (at_risk * (d > 0)).sum(1) > 0
    if compared.sum() < 2:
        return None
    share = at_risk[compared][:, at] / n[at]
    d, n = d[at], n[at]
    apart = (events[compared][:, at] - d * share).sum(1)
    spread = d * (n - d) / np.maximum(n - 1, 1)
    variance = np.diag((spread * share).sum(1)) - (spread * share) @ share.T
    some = apart[:-1], variance[:-1, :-1]
    if np.linalg.matrix_rank(some[1]) < len(some[0]):
        return None
    statistic, degrees = float(some[0] @ np.linalg.solve(some[1], some[0])), len(some[0])
    return LogRank(statistic, degrees, float(stats.chi2.sf(statistic, degrees)))
