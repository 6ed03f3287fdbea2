"""Runs that differ only by seed, taken together; and the keys in which jobs differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import commonpath
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from mpifl.common import one_line
from mpifl.report.runs.run_summary import Summary
from mpifl.report.runs.units import listed, shown
from mpifl.run.folder import same_data
from mpifl.run.job import flat

ALGORITHM, SERVER = "algorithm", "server_optimizer"
NO_MATTER = ("name", "tracking", "checkpoint")
"""Keys of a job that cannot change what it reaches."""

NO_MEANS = (
    "each seed of the other settings has shards of its own, and this run is not on all of them; so there are "
    "no means over these seeds; compare without this setting for them"
)


@dataclass(frozen=True)
class Group:
    """Runs of one job with different seeds, or a single run."""

    name: str
    runs: list[Summary]

    @property
    def diverged(self) -> bool:
        """Whether a run has diverged: the mean of the others would be of lucky seeds."""
        return any(run.diverged for run in self.runs)

    def spread(self, target: float | None) -> dict[str, tuple[float, float] | None]:
        """Return mean and sample standard deviation of each figure; None where not every run has it."""
        each = [run.figures(target) for run in self.runs]
        found: dict[str, tuple[float, float] | None] = {}
        for name in each[0]:
            values = [figure for figures in each if (figure := figures.get(name)) is not None]
            found[name] = (mean(values), stdev(values)) if len(values) == len(each) > 1 else None
        return found


def groups(summaries: Sequence[Summary]) -> list[Group]:
    """Put runs together that differ only by seed.

    A run that is not finished is in no group, unless none is. One that was changed by force on the way stays
    alone. So does one that repeats the only seed of its job; one that repeats a seed of several is in none.
    """
    left_out = unfinished(summaries)
    summaries = [run for run in summaries if run not in left_out]
    together: dict[str, list[int]] = {}
    repeats: dict[str, str] = {}
    for nth, (summary, first) in enumerate(zip(summaries, _first_alike(summaries), strict=True)):
        key, seed = f"as {first}", summary.job.get("seed")
        taken = [summaries[other].job.get("seed") for other in together.get(key, [])]
        if not summary.finished or summary.forced or seed is None or seed in taken:
            if summary.finished and not summary.forced and seed in taken:
                repeats[f"alone: {nth}"] = key
            key = f"alone: {nth}"
        together.setdefault(key, []).append(nth)
    together = {
        key: found for key, found in together.items() if len(together.get(repeats.get(key, ""), ())) < 2
    }
    names, members = labels(summaries), [[summaries[nth] for nth in found] for found in together.values()]
    return _titled([names[nth[0]] for nth in together.values()], members, _each_has_shards(summaries))


def unfinished(summaries: Sequence[Summary]) -> list[Summary]:
    """Return the runs that are not finished, if others are."""
    found = [run for run in summaries if not run.finished]
    return found if len(found) < len(summaries) else []


def unfinished_told(summaries: Sequence[Summary]) -> list[str]:
    """Name the runs that are not ranked since they are not finished, in a line."""
    each = [str(run.run) for run in unfinished(summaries)]
    return [f"Not ranked, since unfinished: {listed(each)}."] if each else []


def _titled(labels: Sequence[str], members: Sequence[list[Summary]], each: bool) -> list[Group]:
    """Return the groups of these runs: several by the settings in which groups differ, one by its label.
    `each` says whether each seed has shards of its own, which then tell no two groups apart."""
    several = [runs for runs in members if len(runs) > 1]
    varied = [key for key in varying([runs[0] for runs in several]) if key != "seed"]
    varied = of_models([key for key in varied if not any(_differ(runs, key) for runs in several)])
    titles = [_title(runs[0], varied) for runs in members if len(runs) > 1]
    found = []
    for label, runs in zip(labels, members, strict=True):
        title = runs[0].called or (_title(runs[0], varied) if len(runs) > 1 else label)
        alike = [other[0] for other in members if len(other) > 1 and _title(other[0], varied) == title]
        shards = not each and any(not same_data(other.data, runs[0].data) for other in alike)
        of = f" ({'shards' if shards else 'code as'} of {label})" if titles.count(title) > 1 else ""
        found.append(Group(title + of * (not runs[0].called), runs))  # by the same job
    return found


def _differ(runs: Sequence[Summary], key: str) -> bool:
    """Return whether runs of one group differ in a setting."""
    return len({shown(settings(run.job).get(key)) for run in runs}) > 1


def of_several_shards(group: Group) -> bool:
    """Return whether the runs of a group are repeats over partitions."""
    return any(not same_data(group.runs[0].data, run.data) for run in group.runs)


def over_common_seeds(found: Sequence[Group]) -> list[Group | None]:
    """Return each group with the runs of the seeds that all have, where each seed has shards of its own: only
    runs on the same shards can be held against each other. None stands for a group that has fewer than two
    seeds in common with the one that has most. Where fewer than two are left, groups are as they were."""
    runs = [run for group in found for run in group.runs]
    if not any(map(of_several_shards, found)) or not _each_has_shards(runs):
        return [*found]
    seeds = [{run.job.get("seed") for run in group.runs} for group in found]
    most = max(seeds, key=len)
    ranked = [of for of in seeds if len(of & most) > 1]
    common = set.intersection(*ranked)
    if len(common) < 2:
        return [*found]
    return [
        None if of not in ranked
        else group if of == common
        else replace(group, runs=[run for run in group.runs if run.job.get("seed") in common])
        for group, of in zip(found, seeds, strict=True)
    ]  # fmt: skip


def why_not_ranked(run: Summary, summaries: Sequence[Summary]) -> str:
    """Say why a run that was scored is not ranked."""
    if run.diverged:
        return "its loss diverged"
    if run in unfinished(summaries):
        return "unfinished"
    group = next((of for of in groups(summaries) if run in of.runs), None)
    if group is None:
        return "repeats a seed"
    if any(other.diverged for other in group.runs):
        return "another seed of its setting diverged"
    return "not every setting has a run of its seed and shards"


def on_other_ground(summaries: Sequence[Summary]) -> list[Summary]:
    """Return the runs, with a remark on each whose shards, or the user's code, are not those of an earlier
    run by the same job."""
    jobs, found, each = _but_for_seed(summaries), [], _each_has_shards(summaries)
    for summary, job, first in zip(summaries, jobs, _first_alike(summaries), strict=True):
        if job and first != jobs.index(job):
            earlier = summaries[jobs.index(job)]
            shards = not each and not same_data(earlier.data, summary.data)
            what = "on other shards" if shards else "by another code of own"
            remark = f"{what} than {earlier.run}, by the same job"
            summary = replace(summary, remarks=(*summary.remarks, remark))
        found.append(summary)
    without = _without_shards_of_others(summaries)
    return [
        replace(run, remarks=(*run.remarks, NO_MEANS)) if nth in without else run
        for nth, run in enumerate(found)
    ]


def _without_shards_of_others(summaries: Sequence[Summary]) -> list[int]:
    """Return the runs of the one setting beside which the others have no means over seeds: each seed of the
    others has shards of its own, and this setting was on none of these."""
    if _each_has_shards(summaries):
        return []
    jobs = _without(summaries, "seed", "shards")
    for job in dict.fromkeys(jobs):
        rest = [run for run, of in zip(summaries, jobs, strict=True) if of != job]
        if rest and _each_has_shards(rest):
            return [nth for nth, of in enumerate(jobs) if of == job]
    return []


def _first_alike(summaries: Sequence[Summary]) -> list[int]:
    """Return for each run the first of its job, whatever the seed, on the same shards by the same code."""
    jobs, apart = _but_for_seed(summaries), _each_has_shards(summaries)
    return [
        next(other for other, first in enumerate(summaries)
             if jobs[other] == job and (apart or same_data(first.data, summary.data))
             and same_data(first.code, summary.code))
        for summary, job in zip(summaries, jobs, strict=True)
    ]  # fmt: skip


def _each_has_shards(summaries: Sequence[Summary]) -> bool:
    """Return whether each seed has shards of its own, the same in all settings that have the seed: repeats
    over partitions."""
    units: dict[str, set[tuple[Any, ...]]] = {}
    for one, job in zip(summaries, _without(summaries, "seed", "shards"), strict=True):
        unit = one.job.get("seed"), one.data.get("sha256"), one.job.get("shards")
        units.setdefault(job, set()).add(unit)
    every = {unit for of in units.values() for unit in of}
    if all(len(of) < 2 for of in units.values()):
        return False
    return all(None not in part and len({*part}) == len(every) for part in zip(*every, strict=True))


def _but_for_seed(summaries: Sequence[Summary]) -> list[str]:
    return _without(summaries, "seed", *(["shards"] if _each_has_shards(summaries) else []))


def _without(summaries: Sequence[Summary], *left_out: str) -> list[str]:
    """Return the settings of each job as text, without some keys."""
    jobs = ({key: of for key, of in settings(one.job).items() if key not in left_out} for one in summaries)
    return [json.dumps(job, sort_keys=True, default=str) if job else "" for job in jobs]


def _title(summary: Summary, varied: Sequence[str]) -> str:
    return _told(settings(summary.job), varied) or one_line(summary.job.get("name", summary.run))


def _told(job: Mapping[str, Any], keys: Sequence[str]) -> str:
    return one_line(", ".join(f"{key} = {shown(job[key])}" for key in keys if key in job))


def varying(summaries: Sequence[Summary]) -> list[str]:
    """Return the keys, `table.key`, in which jobs differ; no defaults of keys that some algorithms lack."""
    jobs = [settings(summary.job) for summary in summaries if summary.job]
    keys = dict.fromkeys(key for job in jobs for key in job)
    differ = [key for key in keys if any(job.get(key) != jobs[0].get(key) for job in jobs)]
    return [key for key in differ if not _is_usual(key, jobs)]


def of_models(keys: list[str]) -> list[str]:
    """Return keys without how often a model is scored, which is no setting of a model, unless it is alone."""
    return [key for key in keys if key != "evaluate.every"] or keys


def _is_usual(key: str, jobs: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a key of the algorithm or of the server's step is not in all jobs, and has its default
    where it is."""
    having = [job for job in jobs if key in job]
    return len(having) < len(jobs) and all(usual(key, job) for job in having)


def usual(key: str, job: Mapping[str, Any]) -> bool:
    """Return whether a key of the algorithm or of the server's step has its default in a job's settings."""
    table, _, name = key.partition(".")
    if table not in (ALGORITHM, SERVER):
        return False
    from mpifl.algorithms import ALGORITHMS, OPTIMIZERS  # a report needs no torch

    kinds: Mapping[str, Any] = ALGORITHMS if table == ALGORITHM else OPTIMIZERS
    kind = kinds.get(str(job.get(f"{table}.name")))
    fields = kind.model_fields.items() if kind else ()
    of = {one.alias or field: one.default for field, one in fields}
    return name in of and bool(of[name] == job[key])


def settings(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's settings by `table.key`, without those that cannot change what it reaches."""
    return flat({key: value for key, value in job.items() if key not in NO_MATTER})


def table_of_differences(summaries: Sequence[Summary], keys: Sequence[str]) -> Table:
    """Return a table with each run's settings of the keys in which jobs differ, as far as it has them."""
    found = Table()
    for heading in ("run", "settings in which the jobs differ"):
        found.add_column(heading, overflow="fold")
    for summary in summaries:
        if summary.job:
            found.add_row(str(summary.run), _told(settings(summary.job), keys))
    return found


def labels(summaries: Sequence[Summary]) -> list[str]:
    """Return the shortest paths by which the runs can be told apart."""
    paths = [Path(summary.run).absolute() for summary in summaries]
    common = Path(commonpath([path.parent for path in paths]))
    return [str(path.relative_to(common)) for path in paths]
