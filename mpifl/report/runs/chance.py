"""What chance makes of a share of right answers, by the examples that it is of."""

from __future__ import annotations

from math import sqrt

from mpifl.learning.metrics import MetricInfo

Z = 1.96
"""Deviations of a normal distribution within which 95 % of it lie."""


def interval(share: float, examples: int) -> tuple[float, float]:
    """Return where a share of so many examples lies with 95 %, by Wilson (1927)."""
    z2 = Z * Z / examples
    middle, apart = share + z2 / 2, sqrt(z2 * max(share * (1 - share), 0.0) + z2 * z2 / 4)
    return (middle - apart) / (1 + z2), (middle + apart) / (1 + z2)


def differ(one: float, other: float, examples: int) -> bool:
    """Return whether two shares of so many examples lie farther apart than chance brings them, with 95 %.

    The interval of their difference is Newcombe's (1998, method 10), of the interval of each. It takes them
    as of different examples. Where both are of the same ones it is too wide rather than too narrow.
    """
    low, high = min(one, other), max(one, other)
    up, down = interval(low, examples)[1] - low, high - interval(high, examples)[0]
    return high - low > sqrt(up * up + down * down)


def counts(metric: MetricInfo) -> bool:
    """Return whether a metric is a share of right answers, whose chance the number of examples tells."""
    return metric.share and metric.name.endswith("accuracy")
