"""What runs are called beside each other: by the settings in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpifl.common import Names, one_line
from mpifl.report.runs.kept_job import trains_alone
from mpifl.report.runs.runs import Summary
from mpifl.report.runs.seeds import Group, settings, shown, varying

MOST_KEYS = 4
"""Settings that a name has; runs that need more to be told apart are called by their folders."""
NAMES, ALGORITHM = Names(), "algorithm.name"


def telling_keys(found: Sequence[Group]) -> list[str]:
    """Return the fewest keys by which groups of runs can be told apart; none where settings do not."""
    jobs = [settings(group.runs[0].job) for group in found]
    several = any(len(group.runs) > 1 for group in found)
    offered = [key for key in varying([group.runs[0] for group in found]) if key != "seed" or not several]
    offered = [
        key for key in offered
        if all(len({shown(settings(run.job).get(key)) for run in group.runs}) == 1 for group in found)
    ]  # fmt: skip
    keys: list[str] = []
    while (parts := _parts(jobs, keys)) < len(found):
        best = max(offered, key=lambda key: _parts(jobs, [*keys, key]), default=None)
        if best is None or _parts(jobs, [*keys, best]) == parts or len(keys) == MOST_KEYS:
            return []
        keys.append(best)
    return [key for key in offered if key in keys]


def legends(found: Sequence[Group]) -> list[str]:
    """Return a name for each group of runs: the settings that tell it from the others, else its folder.

    How many seeds it is the mean of is said where that differs.
    """
    keys = telling_keys(found)
    if any(_lacks(group.runs[0], key) for group in found for key in keys) and ALGORITHM not in keys:
        keys = [ALGORITHM, *keys]
    names = [said(group.runs[0], keys) if keys else NAMES[group.name] for group in found]
    names = [
        f"each silo alone ({name})" if trains_alone(group.runs[0].job) else name
        for name, group in zip(names, found, strict=True)
    ]
    if len({*names}) < len(names):  # cut, so that some are alike
        names = [one_line(group.name) for group in found]
    counts = [len(group.runs) for group in found]
    seeds = [f", {many} seed{'s' * (many > 1)}" if len({*counts}) > 1 else "" for many in counts]
    return [name + of for name, of in zip(names, seeds, strict=True)]


def said(run: Summary, keys: Sequence[str]) -> str:
    """Return a run's settings of some keys in a few words: `fedprox, lr 0.1`."""
    job, told = settings(run.job), [key for key in keys if not _lacks(run, key)]
    return ", ".join(f"{short(key, keys)} {value(job.get(key))}".strip() for key in told)


def _lacks(run: Summary, key: str) -> bool:
    """Return whether a key is of the algorithm, and that of this run has no such key."""
    return key.startswith("algorithm.") and settings(run.job).get(key) is None


def short(key: str, keys: Sequence[str]) -> str:
    """Return the last part of a key where no other ends so; of a name nothing, since it speaks for itself."""
    last = key.rpartition(".")[2]
    alone = [other.rpartition(".")[2] for other in keys].count(last) == 1
    return "" if last == "name" and alone else last if alone else key


def value(found: Any) -> str:
    """Return a setting in a line that is fit to be read."""
    return NAMES[shown(found).removesuffix(".0") if isinstance(found, float) else shown(found)]


def _parts(jobs: Sequence[dict[str, Any]], keys: Sequence[str]) -> int:
    return len({tuple(shown(job.get(key)) for key in keys) for job in jobs})
