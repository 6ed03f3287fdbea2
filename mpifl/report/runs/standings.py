"""Which setting wins, and whether by more than seeds make differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from mpifl.learning.metrics import MetricInfo
from mpifl.report.runs import units
from mpifl.report.runs.compared_columns import metrics_of
from mpifl.report.runs.curve_legends import legends
from mpifl.report.runs.runs import Summary
from mpifl.report.runs.seeds import Group, groups
from mpifl.run.folder import number

MORE, CLEARLY = 2, 3
"""A difference of more than so many standard errors is more than seeds make, or clearly so."""
COLUMNS = ("setting", "setting_seeds", "setting_mean", "setting_deviation", "setting_behind", "setting_error")
"""What the file of all runs says of each run's setting."""


@dataclass(frozen=True)
class Standing:
    """A setting, and how each of its runs ended by the main metric."""

    name: str
    group: Group
    metric: MetricInfo
    ends: list[float]

    @property
    def mean(self) -> float:
        """The mean over its seeds."""
        return fmean(self.ends)

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over its seeds; None of a single one."""
        return stdev(self.ends) if len(self.ends) > 1 else None

    def written(self) -> str:
        """Write its mean and its deviation."""
        spread = "" if self.deviation is None else f" ± {self.metric.write(self.deviation).rstrip('%')}"
        return self.metric.write(self.mean) + spread

    def error(self, other: Standing) -> float | None:
        """Return the standard error of the difference of two means; None where one has a single seed."""
        if self.deviation is None or other.deviation is None:
            return None
        return sqrt(self.deviation**2 / len(self.ends) + other.deviation**2 / len(other.ends))


def judged_figure(runs: Sequence[Summary], metric: MetricInfo) -> str:
    """Return the figure by which runs are judged: on the test set, else on all that silos hold out."""
    if any(number(run.last, metric.test) is not None for run in runs):
        return metric.test
    return next((run.together for run in runs), metric.pooled)


def standings_of(summaries: Sequence[Summary]) -> list[Standing]:
    """Return the settings of runs, the best first; none where runs are judged by several metrics."""
    if len(metrics_of(summaries)) != 1:
        return []
    metric, found = summaries[0].metric, groups(summaries)
    figure, each = judged_figure(summaries, metric), []
    for name, group in zip(legends(found), found, strict=True):
        ends = [end for run in group.runs if (end := number(run.last, figure)) is not None]
        name = name.removesuffix(f", {len(group.runs)} seed{'s' * (len(group.runs) > 1)}")
        each += [Standing(name, group, metric, ends)] if ends else []
    return sorted(each, key=lambda one: one.mean, reverse=metric.higher_is_better)


def verdict(found: Sequence[Standing]) -> list[str]:
    """Say which of several settings is best, and whether it is so by more than seeds make differ."""
    if len(found) < 2:
        return []
    (first, second), seeds = found[:2], len(found[0].ends)
    of = f"the mean of {seeds} seeds" if seeds > 1 else "with one seed"
    said = [f"{first.name} is best: {first.metric.name} {first.written()}, {of}."]
    gap, error = abs(first.mean - second.mean), first.error(second)
    ahead = f"{units.points(gap, first.metric)} ahead of" if gap else "level with"
    ahead = f"It is {ahead} {second.name} ({second.written()})"
    if error is None:
        return [*said, f"{ahead}; where one has a single seed, nobody can tell whether that is chance."]
    much = "clearly more" if gap > CLEARLY * error else "more" if gap > MORE * error else "no more"
    error_of = f"the standard error of the difference is {units.points(error, first.metric)}"
    return [*said, f"{ahead}, {much} than seeds make differ; {error_of}."]


def of_runs(summaries: Sequence[Summary]) -> dict[Path, list[object]]:
    """Return what COLUMNS says of each run that has been judged."""
    found, told = standings_of(summaries), dict[Path, list[object]]()
    for one in found:
        behind, error = abs(one.mean - found[0].mean), one.error(found[0])
        said = [one.name, len(one.ends), one.mean, one.deviation, behind, error]
        told |= {run.run: said for run in one.group.runs}
    return told
