"""What chance makes: of a share of right answers by its examples, and of a difference by the seeds."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance
from typing import TYPE_CHECKING

from mpifl.learning.metrics import ACCURACY, MetricInfo, ToldAnswers
from mpifl.run.folder import number

if TYPE_CHECKING:
    from mpifl.report.runs.runs import Summary

LEVEL = 0.05
"""A difference whose p is at most this is more than chance makes."""

Z = 1.96
"""Deviations of a normal distribution within which 95 % of it lie."""

GUESSED = {"auroc": 0.5}
"""What guessing gives by metrics that do not depend on how common a class is."""
NO_BETTER = "no better than guessing"
GREW = 1.5
"""A loss that ends above so many times its first value has grown."""


def guess_of(summary: Summary) -> float | None:
    """Return what guessing gives on the rows of a run's main value, None if that is not known.

    For accuracy this is the share of the most common class.
    """
    rows = "test" if summary.main and summary.main[0] == summary.metric.test else "silos"
    told = summary.answers.get(rows, ToldAnswers())
    return told.commonest if summary.metric.name == ACCURACY.name else GUESSED.get(summary.metric.name)


def guesses(summary: Summary, value: float) -> bool:
    """Return whether a value of a run's main metric is known to be no better than guessing."""
    guess = guess_of(summary)
    return guess is not None and value <= guess + 1e-9


def unlearnt(summary: Summary) -> Iterator[str]:
    """Yield what shows that a run has not learnt: a value no better than guessing, and losses that grew."""
    if summary.main and guesses(summary, value := summary.main[1]):
        metric, guess = summary.metric, guess_of(summary) or 0.0
        yield f"{NO_BETTER}: {metric.label} is {metric.write(value)}, guessing gives {metric.write(guess)}"
    for name in ("train_loss", "test_loss"):
        told = [one for record in summary.records if (one := number(record, name)) is not None]
        if told and told[-1] > GREW * told[0] > 0:
            yield f"its {name.replace('_', ' ')} grew from {told[0]:.4g} to {told[-1]:.4g}"


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


@dataclass(frozen=True)
class Difference:
    """The difference of two means over seeds: the first less the second.

    Attributes:
        by: The difference.
        low: Where its 95% interval begins.
        high: Where that ends.
        p: The two-sided p of its t-test.
        paired: Whether the test is of pairs, a pair a seed; else it is Welch's (1947).
    """

    by: float
    low: float
    high: float
    p: float
    paired: bool

    @property
    def seen(self) -> bool:
        """Whether it is more than chance makes, by this test alone."""
        return self.p <= LEVEL


def over_seeds(one: Mapping[Hashable, float], other: Mapping[Hashable, float]) -> Difference | None:
    """Return the difference of two settings by their values for each seed; None where one has a single seed.

    Settings of the same seeds are compared pair by pair: a seed draws the same batches and silos for both.
    """
    if len(one) < 2 or len(other) < 2:
        return None
    if paired := one.keys() == other.keys():
        pairs = [value - other[seed] for seed, value in one.items()]
        by, error, freedom = fmean(pairs), sqrt(variance(pairs) / len(pairs)), len(pairs) - 1.0
    else:
        by = fmean(one.values()) - fmean(other.values())
        parts = [(variance(of.values()) / len(of), len(of) - 1) for of in (one, other)]
        square = sum(part for part, _ in parts)
        shares = sum((part / square) ** 2 / many for part, many in parts) if square else 0.0
        error, freedom = sqrt(square), 1 / shares if shares else float(len(one) + len(other) - 2)
    return _tested(by, error, freedom, paired)


def _tested(by: float, error: float, freedom: float, paired: bool) -> Difference:
    """Hold a difference against its standard error by Student's t."""
    if not error:  # all seeds say the same
        return Difference(by, by, by, 0.0 if by else 1.0, paired)
    from scipy import special  # tenths of a second, which only comparisons need

    reach = error * float(special.stdtrit(freedom, 1 - LEVEL / 2))
    return Difference(by, by - reach, by + reach, 2 * float(special.stdtr(freedom, -abs(by / error))), paired)


def holm(found: Sequence[float]) -> list[float]:
    """Return p of several tests, corrected for their number by Holm (1979), in the order that was given."""
    corrected, least = [0.0] * len(found), 0.0
    for nth, at in enumerate(sorted(range(len(found)), key=found.__getitem__)):
        least = max(least, min(1.0, (len(found) - nth) * found[at]))
        corrected[at] = least
    return corrected
