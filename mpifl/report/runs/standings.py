"""Which setting wins, and whether by more than chance makes over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean, stdev

from mpifl.learning.metrics import MetricInfo
from mpifl.report.observers import worst_silo
from mpifl.report.runs import chance, units
from mpifl.report.runs.chance import LEVEL, Difference
from mpifl.report.runs.compared_columns import metrics_of
from mpifl.report.runs.curve_legends import legends, without_seeds
from mpifl.report.runs.kept_job import EACH_ALONE
from mpifl.report.runs.ranking_figure import SERVER, VALID, Judged, judged_by_all, name_of, of_baseline
from mpifl.report.runs.run_summary import Summary
from mpifl.report.runs.seeds import Group, groups, of_several_shards, over_common_seeds
from mpifl.report.runs.units import MOST_NAMED, listed
from mpifl.run.folder import number

HEADS = ("behind the first", "95% interval over seeds", "p over seeds", "95% interval by rows")
"""What tables say of a setting beside the one with the best mean, as `corrected` says."""
ALIKE = "same for all seeds"


@dataclass(frozen=True)
class Standing:
    """A setting, and how each of its runs ended by the main metric."""

    name: str
    group: Group
    metric: MetricInfo
    ends: list[float]
    seeds: list[Hashable] = field(default_factory=list)
    """The seed of each end."""
    judged: Judged | None = None
    """What the ends are of."""

    @property
    def mean(self) -> float:
        """The mean over its seeds."""
        return fmean(self.ends)

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over its seeds; None of a single one."""
        return stdev(self.ends) if len(self.ends) > 1 else None

    def of_silos(self, what: str) -> list[float]:
        """Return a figure of each run over silos, worst or mean, by the rows that judge if silos hold these;
        nothing if one lacks it."""
        key = f"{self.metric.silo}_{what}"
        each = [number(self.judged.told_of_silos(run), key) for run in self.group.runs] if self.judged else []
        found = [one for one in each if one is not None]
        return found if len(found) == len(each) else []

    def worst_told(self) -> str:
        """Write the mean of these, and of which silo the worst is, by which seed; "–" of none."""
        if not (each := self.of_silos("worst")) or self.judged is None:
            return "–"
        worst = self.metric.worst(each, default=each[0])
        run = self.group.runs[each.index(worst)]
        name, write = worst_silo(self.judged.told_of_silos(run), self.metric), self.metric.write
        who = f"silo {name}" if name else "a silo"
        if len(each) < 2:
            return f"{write(worst)}, {who}"
        both = "; ".join(dict.fromkeys([write(fmean(each)), write(worst)]))
        return f"{both} at {who}, seed {run.job.get('seed')}"

    @property
    def worst_head(self) -> str:
        """What a table calls that."""
        judged, held = self.judged, "held-out examples"
        rows = judged.silo_rows or held * (judged.rows == SERVER) if judged else ""
        return "worst silo" + f", {rows}" * bool(rows)

    def sums(self, target: float | None, *names: str) -> list[float]:
        """Return the sum of some figures of each run; nothing where a run lacks one."""
        each = [[run.figures(target).get(name) for name in names] for run in self.group.runs]
        found = [sum(value for value in of if value is not None) for of in each if None not in of]
        return found if len(found) == len(each) else []

    def written(self) -> str:
        """Write its mean and its deviation."""
        return self.metric.write_spread(self.mean, self.deviation)


@dataclass(frozen=True)
class Rival:
    """A setting beside the one with the best mean.

    Attributes:
        standing: The setting.
        behind: How much worse its mean is.
        test: The difference, positive where the first is better, at Holm's level; None of a single seed.
        p: Its p, corrected likewise.
        rows: The difference by the rows that judge, at Holm's level likewise, if that is known.
    """

    standing: Standing
    behind: float
    test: Difference | None
    p: float | None
    rows: Difference | None = None

    @property
    def seen(self) -> bool:
        """Whether it is behind by more than chance makes of the seeds."""
        return self.p is not None and self.p <= LEVEL

    @property
    def may_turn(self) -> bool:
        """Whether it is behind by more than seeds differ, and not by more than chance makes of the rows."""
        return self.seen and self.rows is not None and self.rows.low <= 0 <= self.rows.high

    @property
    def alike(self) -> bool:
        """Whether the difference is the same for all seeds, so that seeds give no interval."""
        return self.test is not None and self.behind > 0 and round(self.test.high - self.test.low, 9) == 0

    def cells(self) -> list[str]:
        """Return what HEADS says of it."""
        metric, tested = self.standing.metric, [ALIKE if self.alike else "-", "-"]
        if self.test is not None and self.p is not None and not self.alike:
            p = f"{units.probability(self.p)} {name_of(self.test)}"
            tested = [units.between(*self.test.reach, metric), p]
        by_rows = units.between(*self.rows.reach, metric) if self.rows else "-"
        return [units.points(self.behind, metric), *tested, by_rows]


def standings_of(summaries: Sequence[Summary]) -> list[Standing]:
    """Return the settings of runs, the best first; none where runs are judged by several metrics."""
    return standings_of_groups(groups(summaries)) if summaries else []


def standings_of_groups(found: Sequence[Group]) -> list[Standing]:
    """Return groups of runs as settings, the best first; none where runs are judged by several metrics."""
    summaries = [run for group in found for run in group.runs]
    if len(metrics_of(summaries)) != 1:
        return []
    metric, each = summaries[0].metric, list[Standing]()
    named = list(zip(legends(found), found, strict=True))
    fit = [(name, group) for name, group in named if not group.diverged]
    ranked = over_common_seeds([group for _, group in fit])
    if (judged := judged_by_all([group for group in ranked if group])) is None:
        return []
    judged = replace(
        judged,
        diverged=[name for name, group in named if group.diverged],
        apart_seeds=[name for (name, _), group in zip(fit, ranked, strict=True) if group is None],
        some_seeds=any(of and of is not whole for (_, whole), of in zip(fit, ranked, strict=True)),
    )
    for (name, whole), group in zip(fit, ranked, strict=True):
        told = [(run.job.get("seed"), judged.value(run)) for run in (group.runs if group else ())]
        ends = [(seed, end) for seed, end in told if end is not None]
        name = without_seeds(name, whole)
        if ends and group:
            seeds, values = [seed for seed, _ in ends], [end for _, end in ends]
            each.append(Standing(name, group, metric, values, seeds, judged))
    return sorted(each, key=lambda one: one.mean, reverse=metric.higher_is_better)


def rivals(found: Sequence[Standing]) -> list[Rival]:
    """Return what each setting but the first is behind it.

    The results choose the first. So p and intervals are corrected for the pairs of all settings: else the
    best of six equal ones would be ahead in one case of ten.
    """
    by_seeds, by_rows = (_of_first(found, test) for test in (tested, _by_rows))
    told = []
    for nth, one in enumerate(found[1:], 1):
        (test, p), (rows, _) = by_seeds.get(nth, (None, None)), by_rows.get(nth, (None, None))
        told.append(Rival(one, abs(one.mean - found[0].mean), test, p, rows))
    return told


def _of_first(
    found: Sequence[Standing], test: Callable[[Standing, Standing], Difference | None]
) -> dict[int, tuple[Difference, float]]:
    """Return the tests of the first setting and others, by their place, corrected for the pairs of all."""
    ways = combinations(range(len(found)), 2)
    tests = {way: of for way in ways if (of := test(found[way[0]], found[way[1]])) is not None}
    return {way[1]: of for way, of in zip(tests, chance.holm([*tests.values()]), strict=True) if not way[0]}


def corrected(found: Sequence[Standing]) -> list[str]:
    """Say that the tests of several pairs of settings are corrected, where there are several."""
    tests = (tested, _by_rows)
    several = any(sum(test(*pair) is not None for pair in combinations(found, 2)) > 1 for test in tests)
    said = "Intervals of differences and p are corrected by Holm for all pairs of settings"
    return [f"{said}: an interval over seeds leaves out 0 where p is at most {LEVEL}."] if several else []


def crowned(found: Sequence[Standing]) -> bool:
    """Return whether the first of several settings is ahead of each other one by more than chance makes."""
    return len(found) > 1 and all(one.seen for one in rivals(found))


def tested(one: Standing, other: Standing) -> Difference | None:
    """Hold a setting against one that is no better; positive is better."""
    if one.judged and one.judged.apart:
        return None
    sign = 1 if one.metric.higher_is_better else -1
    each = ({seed: sign * end for seed, end in zip(of.seeds, of.ends, strict=True)} for of in (one, other))
    return chance.over_seeds(*each)


def _by_rows(one: Standing, other: Standing) -> Difference | None:
    """Hold a setting against another one by the rows that judge, if these are counted."""
    return one.judged.difference(one.mean, other.mean) if one.judged else None


def verdict(found: Sequence[Standing]) -> list[str]:
    """Say which of several settings is best, if one is by more than chance makes over the seeds."""
    if not found:
        return []
    judged = found[0].judged
    left_out = judged.left_out() if judged else []
    if len(found) < 2:
        only = f"Only {found[0].name} is ranked: {found[0].metric.label} {found[0].written()}."
        return [only, *left_out] if judged and (judged.diverged or judged.apart_seeds) else left_out
    repeats = any(of_several_shards(one.group) for one in found)
    if judged and judged.apart:
        if told := of_baseline([run for one in found for run in one.group.runs]):
            return [told, *left_out]
        few = ": each seed has shards of its own, and fewer than two seeds are common to all" * repeats
        return [f"The runs are scored on different rows{few}, so they are not ranked.", *left_out]
    others = rivals(found)
    said = [_head(found[0], others), *by_other_rows(found), _next(found, others), *_tested(found[0])]
    said += ["Each seed has shards of its own, the same for all settings."] if repeats else []
    if judged and judged.some_seeds:
        seeds = " and ".join(map(str, found[0].seeds)) if len(found[0].seeds) < MOST_NAMED else "those"
        said.append(f"Settings are compared by seeds {seeds} alone, which all of them have.")
    return [*said, *left_out]


def ranked_by(found: Sequence[Standing]) -> list[str]:
    """Say by what settings are ranked, if they are."""
    judged = found[0].judged if found else None
    return [f"Settings are ranked by {judged.words()}."] if judged and not judged.apart else []


def _tested(first: Standing) -> list[str]:
    """Say what the first of a search has on test rows, which had no part in the choice."""
    found = [run.final() for run in first.group.runs if run.search]
    values = [value for value in found if value is not None]
    if not values or first.judged is None or first.judged.rows != VALID:
        return []
    said = first.metric.write_spread(fmean(values), stdev(values) if len(values) > 1 else None)
    return [f"{first.name} has {first.metric.label} {said} on test rows, scored once at the end."]


def _next(found: Sequence[Standing], others: Sequence[Rival]) -> str:
    """Say how far the second is behind, and what chance makes of that."""
    first, second = found[0], others[0]
    gap = f"{units.points(second.behind, first.metric)} behind" if second.behind else "at the same value"
    said = f"{_first(second.standing.name)} ({second.standing.written()}) is next, {gap}"
    if second.test is None or second.p is None:
        if not second.behind:
            return "A single seed cannot show whether they differ."
        return f"{said}; a single seed cannot show whether that is chance."
    if second.alike:
        print_it = f"; report the interval by rows, {second.cells()[-1]}" if second.rows else ""
        return f"{said} for each of {len(first.ends)} seeds, so seeds give no interval{print_it}."
    reach = units.between(*second.test.reach, first.metric)
    name = f"a paired t-test over {len(first.ends)} seeds" if second.test.paired else "Welch's t-test"
    equal = "p " if second.p < units.LEAST else "p = "
    return f"{said}: 95% interval {reach}, {equal}{units.probability(second.p)} by {name}."


def by_other_rows(found: Sequence[Standing]) -> list[str]:
    """Say which differences that are more than seeds make might not hold on other rows."""
    ranked = len(found) > 1 and not (found[0].judged and found[0].judged.apart)
    if not (may := [one for one in rivals(found) if one.may_turn] if ranked else []):
        return []
    (first, *rest), reach = [one.standing.name for one in may], may[0].cells()[-1]
    also = f", as that of {listed(rest)} does" if rest else ""
    seeds = "" if may[0].alike else "Other seeds do not change this: the interval over seeds leaves out 0. "
    turns = f"the interval by rows of {first}, {reach}, includes 0{also}"
    return [f"{seeds}On other rows the order may be another one: {turns}."]


def _head(first: Standing, others: Sequence[Rival]) -> str:
    """Say whether the first is best, or only has the best mean."""
    seeds = len(first.ends)
    over = "the same for all" if first.deviation == 0 else "the mean ± standard deviation over"
    of = f"{over} {seeds} seeds" if seeds > 1 else "with one seed"
    rows = f" on {first.judged.where}" if first.judged else ""
    figure = f"{first.metric.label} {first.written()}{rows}, {of}"
    on = " on these rows" * any(one.may_turn for one in others)
    if all(one.seen for one in others):
        return f"{_first(first.name)} is best{on}: {figure}."
    several = [one.seen for one in others if one.test]
    if several and all(several):
        many = f"the {len(several) + 1:,} settings with several seeds"
        return f"{_first(first.name)} is the best of {many}{on}: {figure}."
    if any(several):
        return f"No single setting is best. {_first(first.name)} has the best mean: {figure}."
    many = f"the {len(others) + 1:,} settings" if len(others) > 1 else "the two settings"
    tested = all(one.test for one in others)
    told = f"No difference is seen between {many}" if tested else "No setting is known to be best"
    if equal := [one.standing.name for one in others if not one.behind]:
        listed = ", ".join([_first(first.name), *equal[:-1]])
        return f"{told}. {listed} and {equal[-1]} are equal: {figure}."
    return f"{told}. {_first(first.name)} has the best {'mean' if seeds > 1 else 'figure'}: {figure}."


def _first(name: str) -> str:
    """Return a name as the first words of a sentence."""
    return name.replace("each", "Each", 1) if name.startswith(EACH_ALONE) else name
