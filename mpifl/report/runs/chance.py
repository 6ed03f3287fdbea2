"""What chance makes: of shares of right answers by their examples, and of a difference by the seeds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor, log, sqrt
from statistics import fmean, variance
from typing import TYPE_CHECKING, NamedTuple

from mpifl.learning.metrics import ACCURACY, MetricInfo, ToldAnswers
from mpifl.report.runs.kept_job import classes_of
from mpifl.run.folder import number, read_environment

if TYPE_CHECKING:
    from mpifl.report.runs.run_summary import Summary

LEVEL = 0.05
"""A difference whose p is at most this is more than chance makes."""
Z = 1.96
"""Deviations of a normal distribution within which 95 % of it lie."""
FOUND_NOTHING = dict.fromkeys(("dice", "iou", "dice_pooled", "iou_pooled"), 0.0)
"""What a model has by these metrics that answers background everywhere."""
GUESSED = {"auroc": 0.5, "c_index": 0.5, "r2": 0.0, "matthews": 0.0, "cohen_kappa": 0.0, **FOUND_NOTHING}
"""What guessing gives by metrics that do not depend on how common a class is."""
NO_BETTER, ALWAYS = "no better than guessing", "always answering the most common class"
TOGETHER = "all silos' rows together"
GREW, BLEW = 1.5, 10
"""A loss that ends above so many times its first value has grown, or diverged."""
LOSSES = {"train_loss": "training loss", "test_loss": "test loss"}
HALVINGS = 60
"""Turns of a search for an end of an interval; each halves what is left."""
DIVERGED = ("not finite", "NaN or Inf", "diverged")
"""What messages on a training that diverged say."""


def names_divergence(text: str) -> bool:
    """Return whether a message says that a training diverged."""
    return any(word in text for word in DIVERGED)


class Grown(NamedTuple):
    """A loss that is far too high: since which round, in words, and whether a training diverged so."""

    since: int
    words: str
    diverged: bool


def grown(summary: Summary, key: str) -> Grown | None:
    """Return how a loss grew, None of one that did not.

    Its end is held against its first value, and against the loss of equal probabilities for all classes,
    which a first round that diverged has already left behind. Where a run is no better than guessing, so is
    its largest value. A task of the user's own may have a loss of any size.
    """
    told = [(int(r["round"]), one) for r in summary.records if (one := number(r, key)) is not None]
    if not told:
        return None
    (begun, low), (ended, high) = told[0], told[-1]
    if high > GREW * low > 0:
        since = max(nth for nth, (_, one) in enumerate(told) if one <= GREW * low) + 1
        words = (
            f"grew {high / low:,.3g}-fold, from {low:.4g} in round {begun:,} to {high:.4g} in round {ended:,}"
        )
        return Grown(told[since][0], words, high > BLEW * low)
    own = ":" in str(summary.job.get("task", {}).get("name"))
    equal = 0.0 if own else log(classes_of(read_environment(summary.run)) or 1)
    guessed = bool(summary.main and guess_of(summary) and guesses(summary, summary.main[1]))
    at, most = max(told, key=lambda one: one[1]) if guessed else told[-1]
    if not most > (GREW if guessed else BLEW) * equal > 0:
        return None
    since = next(at for at, one in told if one > equal)
    was = f"was largest, {most:.4g}, in" if guessed else f"was {most:.4g} after"
    words = f"was above {equal:.4g}, the loss of equal probabilities for all classes"
    if at == since:
        return Grown(since, f"was {most:.4g} in round {at:,}: {words.removeprefix('was ')}", True)
    return Grown(since, f"{words}, first in round {since:,}, and {was} round {at:,}", True)


def guess_of(summary: Summary) -> float | None:
    """Return what guessing gives on the rows of a run's main value, None if that is not known.

    For accuracy this is the share of the most common class.
    """
    if summary.metric.name != ACCURACY.name:
        return GUESSED.get(summary.metric.name)
    return commonest(summary, bool(summary.main and summary.main[0] == summary.metric.test))[0]


def commonest(summary: Summary, test: bool) -> tuple[float | None, str]:
    """Return the accuracy of always the most common class, and of which rows that is: of the server's test
    set, or of what silos hold out. Where silos have models of their own, it is each silo's class."""
    of = summary.answers.get("test" if test else "silos", ToldAnswers())
    if not test and (summary.own_models or summary.commonest is not None):
        return summary.commonest, "each silo's own rows" if summary.own_models else TOGETHER
    return of.commonest, "the training rows" if of.of_training else "these rows" if test else TOGETHER


def guesses(summary: Summary, value: float) -> bool:
    """Return whether a value of a run's main metric is known to be no better than guessing."""
    return (guess := guess_of(summary)) is not None and value <= guess + 1e-9


def unlearnt(summary: Summary) -> Iterator[str]:
    """Yield what shows that a run has not learnt: a value no better than guessing, and losses that grew."""
    if summary.main and guesses(summary, value := summary.main[1]):
        metric, guess = summary.metric, guess_of(summary) or 0.0
        gives = f"{ALWAYS if metric.name == ACCURACY.name else 'guessing'} gives {metric.write(guess)}"
        gives = "as of a model that answers background everywhere" if metric.name in FOUND_NOTHING else gives
        yield f"{NO_BETTER}: {metric.label} is {metric.write(value)}, {gives}"
    for key, name in LOSSES.items():
        if (of := grown(summary, key)) is not None:
            yield f"{'diverged: ' * of.diverged}its {name} {of.words}"


def below_commonest(summary: Summary) -> str:
    """Say that an accuracy beside the main metric is not above that of always the most common class."""
    whole, record = ACCURACY.judged_by[:2], summary.at_end or summary.of_model
    known = ((number(record, key), *commonest(summary, key == ACCURACY.test)) for key in whole)
    value, guess, of = next((one for one in known if None not in one), (1.0, 0.0, ""))
    if summary.metric.name == ACCURACY.name or value is None or guess in (None, 1) or value > guess + 1e-9:
        return ""
    has, gives, of = *map(ACCURACY.write, (value, guess)), of.replace("these rows", "the server's test set")
    return f"Accuracy is {has}, no better than {ALWAYS} of {of}, which gives {gives}."


def interval(share: float, examples: int) -> tuple[float, float]:
    """Return where a share of so many examples lies with 95 %, by Wilson (1927)."""
    z2 = Z * Z / examples
    middle, apart = share + z2 / 2, sqrt(z2 * max(share * (1 - share), 0.0) + z2 * z2 / 4)
    return (middle - apart) / (1 + z2), (middle + apart) / (1 + z2)


def reach_at_end(summary: Summary, info: MetricInfo, key: str, rows: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a metric at the end of a run, if it is known.

    Its answers tell it (DeLong for AUROC), or of the main one how many `rows` it is of. `key` is that of the
    metric in rounds.
    """
    told = summary.answers.get("test" if key.startswith("test_") else "silos", ToldAnswers())
    ends = told.intervals.get(info.name)
    if ends is None and rows and summary.main and counts(info):
        return interval(summary.main[1], rows)
    return ends


def apart(one: float, other: float, examples: int) -> tuple[float, float]:
    """Return where the difference by rows of two shares lies with 95 %."""
    return by_rows(one, other, examples).reach


def by_rows(one: float, other: float, examples: int) -> Difference:
    """Return the difference of two shares of right answers to the same examples, one less other.

    Which of the answers have changed is not known. The most that can have are taken, so the interval is
    rather too wide. A mean of several runs may lie between two whole numbers of right answers.
    """
    right, of_other = (round(share * examples, 6) for share in (one, other))
    better, worse = min(right, examples - of_other), min(of_other, examples - right)
    return by_right_answers(better, worse, examples)


def differ(one: float, other: float, examples: int) -> bool:
    """Return whether two shares of the same examples lie farther apart than chance brings them."""
    low, high = apart(one, other, examples)
    return low > 0 or high < 0


def counts(metric: MetricInfo) -> bool:
    """Return whether a metric is a share of right answers, whose chance the number of examples tells."""
    return metric.share and metric.name.endswith("accuracy")


@dataclass(frozen=True)
class Difference:
    """The difference of two means, over seeds or over rows: the first less the second.

    Attributes:
        by: The difference.
        p: The two-sided p of its test, of this test alone.
        paired: Whether the test is of pairs, a pair a seed or a row; else it is Welch's (1947).
        ends: From a level to the ends of the interval that leaves out this share.
        level: The level at which it is tested: LEVEL of a single test, less of one of several.
    """

    by: float
    p: float
    paired: bool
    ends: Callable[[float], tuple[float, float]]
    level: float = LEVEL

    @cached_property
    def reach(self) -> tuple[float, float]:
        """The ends of the interval of its level, which holds 0 where the test does not refuse 0."""
        low, high = self.ends(self.level)
        return (low, high) if self.p <= self.level else (min(low, 0.0), max(high, 0.0))

    @property
    def low(self) -> float:
        """Where its interval begins."""
        return self.reach[0]

    @property
    def high(self) -> float:
        """Where its interval ends."""
        return self.reach[1]

    @property
    def seen(self) -> bool:
        """Whether it is more than chance makes, by this test alone."""
        return self.p <= LEVEL


def by_right_answers(better: float, worse: float, rows: int) -> Difference:
    """Return the difference of two shares of right answers to the same rows.

    p is of the exact two-sided test (McNemar 1947): twice the smaller tail of a binomial with probability
    1/2. The interval inverts Tango's score test (1998), which refuses 0 somewhat sooner.

    Args:
        better: Rows that the first model alone has right. A mean over runs may lie between whole numbers; p
            is then of the whole ones beside it that differ less.
        worse: Rows that the second model alone has right, likewise.
        rows: All rows, at least 1.
    """
    from scipy import special  # tenths of a second, which only comparisons need

    by, fewer, more = (better - worse) / rows, ceil(min(better, worse)), floor(max(better, worse))
    p = min(1.0, 2 * float(special.bdtr(min(fewer, more), fewer + more, 0.5))) if fewer + more else 1.0

    def ends(level: float) -> tuple[float, float]:
        z = float(special.ndtri(1 - level / 2))
        return _end(better, worse, rows, -1.0, by, z), _end(better, worse, rows, by, 1.0, -z)

    return Difference(by, p, True, ends)


def _end(better: float, worse: float, rows: int, low: float, high: float, wanted: float) -> float:
    """Return the difference between two others at which the score is `wanted`; the score falls."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        over = _score(better, worse, rows, middle) > wanted
        low, high = (middle, high) if over else (low, middle)
    return (low + high) / 2


def _score(better: float, worse: float, rows: int, by: float) -> float:
    """Return Tango's score (1998, equation 3) of a difference, which lies between -1 and 1."""
    linear = (2 * rows - better + worse) * by - better - worse
    constant = -worse * by * (1 - by)
    only = (sqrt(linear * linear - 8 * rows * constant) - linear) / (4 * rows)
    square = rows * (2 * only + by * (1 - by))
    return (better - worse - rows * by) / sqrt(square) if square > 0 else 0.0


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
        return Difference(by, 0.0 if by else 1.0, paired, lambda level: (by, by))
    from scipy import special  # tenths of a second, which only comparisons need

    def ends(level: float) -> tuple[float, float]:
        reach = error * float(special.stdtrit(freedom, 1 - level / 2))
        return by - reach, by + reach

    return Difference(by, 2 * float(special.stdtr(freedom, -abs(by / error))), paired, ends)


def holm(found: Sequence[Difference]) -> list[tuple[Difference, float]]:
    """Return several tests, corrected for their number by Holm (1979), in the order that was given.

    Each has the level of its step, LEVEL by the number of tests whose p is not smaller. Where an earlier step
    has failed and p is below that, it has the level of the step that failed, so that interval and p agree.
    """
    corrected, times = dict[int, tuple[Difference, float]](), len(found)
    least = failed = before = 0.0
    for nth, at in enumerate(sorted(range(len(found)), key=lambda at: found[at].p)):
        p = found[at].p
        times, before = len(found) - nth if p > before else times, p
        least, level = max(least, times * p), LEVEL / times
        failed = failed or level * (least > LEVEL)
        corrected[at] = replace(found[at], level=failed if failed and p <= level else level), min(1.0, least)
    return [corrected[at] for at in range(len(found))]
