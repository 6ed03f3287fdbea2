"""What is skewed in a federation before a training, and which algorithms and settings that suggests.

The bounds are rules of thumb: try a few rounds before you decide.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from data_prep.dataset import of_tokens
from data_prep.inspect.feature_moments import feature_skew, target_columns
from data_prep.inspect.heterogeneity import gini, heterogeneity
from data_prep.inspect.summary import FolderSummary
from mpifl.common.pages import Block, Figure, Terms
from mpifl.data import Targets

LITTLE, MUCH = 0.1, 0.3
"""Shares of a silo's labels that would have to move: below the first labels differ little, from the second on
much."""
UNEVEN = 0.3
"""A Gini coefficient from which on sizes are uneven."""
SHIFTED = 0.3
"""Deviations by which features, or targets, are shifted enough to matter."""
LARGE = 10.0
"""A mean or deviation of targets from which on steps are too short for them; below its inverse, too long."""
TIMES = ("time", "event")
"""What the columns of survival are called, which no model learns as values."""
MOST_COLUMNS = 6
"""Columns of targets that have a mean and a deviation each."""
CHANCE = 1.5
"""How many times what chance alone brings a figure must be to tell anything."""
MOST_REGRESSED = 128
"""Columns of a table that a regression takes, as a reader of coefficients would."""
FEW = 20
"""So many silos may all take part in every round."""


class Take(NamedTuple):
    """Names that a job may use, and why."""

    names: tuple[str, ...]
    why: str


ALIKE = Take(("fedavg",), "the silos' updates are similar, so several epochs a round cost little accuracy")
HELD = Take(
    ("fedprox", "fedavg"),
    "local models drift apart in long rounds; a proximal term, fewer epochs or a lower local.lr limits that",
)
CORRECTED = Take(
    ("scaffold", "feddyn"),
    "they correct each silo's drift; they need silos that take part in nearly every round, and a lower "
    "local.lr than fedavg's; compare the two",
)
AVERAGED = Take(
    ('[server_optimizer] name = "adam"',),
    "the server's moments average out updates whose direction changes from round to round",
)
OWN = Take(("ditto", "fedper"), "each silo gets a model of its own, fitted to its labels")
ALL_COUNT = Take(
    ('[cohort] weights = "uniform"',),
    "by default a silo's weight is its number of examples; this gives small silos the same weight",
)
NORMALISED = Take(
    ("fednova",), "each update is divided by its number of steps, so that large silos do not dominate"
)
NORMS = Take(
    ("fedbn",),
    "it keeps BatchNorm layers at each silo; without such layers, bring all silos' features to one scale",
)
NEAR = Take(
    ("ditto", "fedper"),
    "one model for all silos predicts near the overall mean; a silo's own model fits its targets",
)


LOGISTIC = Take(
    ("newton",),
    'logistic regression by [task] name = "binary"; the result is that of all rows in one table, however '
    "silos differ",
)
LINEAR = Take(
    ("newton",),
    'linear regression by [task] name = "regression", of counts by "counts"; the result is that of all rows '
    "in one table, however silos differ",
)
TIMED = Take(
    ("cox", "kaplanmeier"),
    "hazard ratios, and curves; the result is that of all rows in one table, however silos differ",
)


class Advice(NamedTuple):
    """Something that is skewed, and what a job may do about it."""

    found: str
    take: Take

    def __str__(self) -> str:
        return f"{self.found}: {' or '.join(self.take.names)} ({self.take.why})."


def advice(summary: FolderSummary) -> list[Advice]:
    """Return what the figures of a folder suggest; of one silo nothing."""
    if len(summary.sizes) < 2:
        return []
    if of_times(summary):
        return [Advice("For the times until an event", TIMED)]
    found = [*_labels(summary), *_sizes(summary), *_features(summary)]
    found = found or [Advice("The silos are similar in all that is shown here", ALIKE)]
    return [*_regression(summary), *found, *_units(summary)]


def of_times(summary: FolderSummary) -> bool:
    """Tell whether targets are times until an event."""
    targets = summary.spec.targets
    return isinstance(targets, Targets) and tuple(targets.names or ()) == TIMES


def _regression(summary: FolderSummary) -> Iterator[Advice]:
    """Suggest a regression of a table of few columns, whose outcome is two classes or one number."""
    spec = summary.spec
    named = not isinstance(spec.features, dict) and len(spec.feature_names or ())
    if not named or named > MOST_REGRESSED:
        return
    numbers = [name for names in target_columns(spec).values() for name in names]
    found = f"For coefficients of {named} features with standard errors"
    if summary.labelled and spec.classes == 2:
        yield Advice(found, LOGISTIC)
    elif spec.classes is None and len(numbers) == 1:
        yield Advice(found, LINEAR)


def _units(summary: FolderSummary) -> Iterator[Advice]:
    """Suggest to learn values in their deviations, where their unit makes them large or small."""
    targets = summary.spec.targets
    values = isinstance(targets, Targets) and targets.dtype != "bool"
    if not summary.targets or not values:
        return
    pooled = functools.reduce(operator.add, summary.targets)
    alike = len(pooled.mean) > MOST_COLUMNS
    columns = [pooled.overall()] if alike else [*zip(pooled.mean, pooled.deviation, strict=True)]
    if all(max(abs(mean), spread) < LARGE and spread > 1 / LARGE for mean, spread in columns):
        return
    keys = {"mean": [mean for mean, _ in columns], "deviation": [spread or 1.0 for _, spread in columns]}
    told = [f"{key} = {_numbers(column)}" for key, column in keys.items()]
    why = "a model then learns standardised targets; metrics and predictions keep the unit"
    yield Advice("Targets are far from 0 ± 1", Take((f"[task] {' and '.join(told)}",), why))


def _numbers(column: Sequence[float]) -> str:
    """Write a number, or a list of several, as a job file has it."""
    written = [f"{number:.4g}" for number in column]
    return written[0] if len(written) == 1 else f"[{', '.join(written)}]"


def _labels(summary: FolderSummary) -> Iterator[Advice]:
    if not summary.labelled or of_tokens(summary.spec):  # texts differ in their tokens, which are no classes
        return
    moved, silos = heterogeneity(summary.counts).total_variation, len(summary.sizes)
    if moved < LITTLE or moved < CHANCE * by_chance(summary.counts):
        return
    lacking = int((summary.counts == 0).any(axis=1).sum())
    how = "strongly" if moved >= MUCH else "moderately"
    found = f"Labels differ {how}: {moved:.0%} of a silo's labels would have to move"
    found += f", and {lacking:,} of {silos:,} silos have no example of some class" if lacking else ""
    if moved < MUCH:
        yield Advice(found, HELD)
        return
    yield Advice(found, CORRECTED if silos <= FEW else AVERAGED)
    yield Advice("If each silo needs the best model for itself", OWN)


def _sizes(summary: FolderSummary) -> Iterator[Advice]:
    sizes = summary.sizes
    if (uneven := gini(sizes)) >= UNEVEN:
        largest = sizes.max() / sizes.sum()
        most = f"the largest silo has {largest:.0%} of all examples"
        yield Advice(f"Sizes differ strongly (Gini {uneven:.2f}): {most}", ALL_COUNT)
        yield Advice("Large silos take many more steps in an epoch", NORMALISED)


def _features(summary: FolderSummary) -> Iterator[Advice]:
    chance = float(np.mean(1 / np.sqrt(np.maximum(summary.sizes, 1))))
    for what, moments, take in (("Features", summary.moments, NORMS), ("Targets", summary.targets, NEAR)):
        if moments and (apart := feature_skew(moments)) >= max(SHIFTED, CHANCE * chance):
            how = f"a silo is on average {apart:.2f} standard deviations from all silos together"
            yield Advice(f"{what} differ: {how}", take)


def by_chance(counts: np.ndarray) -> float:
    """Return the mean total variation distance that silos of these sizes have if labels are dealt at random.

    A label's share in n examples is off by sqrt(2 p (1 - p) / (pi n)) in the mean, by the normal law.
    """
    totals = np.maximum(counts.sum(axis=1), 1)
    p = counts.sum(axis=0) / max(counts.sum(), 1)
    off = np.sqrt(2 * p * (1 - p) / math.pi).sum() / 2
    return float((off / np.sqrt(totals)).mean())


def section(title: str, found: Sequence[Advice]) -> list[Block]:
    """Return advice below a title as a part of a page; nothing where there is none."""
    rows = [(one.found, one.take.names, one.take.why) for one in found]
    note = "Rules of thumb: try a few rounds before you decide."
    return [Figure(title, note, [Terms(rows)])] if rows else []
