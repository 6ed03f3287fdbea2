"""What runs are called beside each other: by the settings in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mpifl.common import InputError, Names, one_line
from mpifl.report.runs.kept_job import EACH_ALONE, trains_alone
from mpifl.report.runs.run_summary import Summary
from mpifl.report.runs.seeds import SERVER, Group, groups, of_models, settings, usual, varying
from mpifl.report.runs.units import shown
from mpifl.silo.steps import LOCAL

MOST_KEYS, MOST_NAMED = 4, 6
"""Settings that tell runs apart, of more runs are called by their folders; and settings that a name has, of
more only those that tell apart."""
LACKING = {"security": "masks"}
"""What a job lacks that has no such table, where it is not called so."""
NAMES, ALGORITHM = Names(), "algorithm.name"
LAST = ("rounds", "evaluate.every")
"""Settings that say least of what a run is, by which it is called where no others tell."""


def telling_keys(found: Sequence[Group]) -> list[str]:
    """Return the fewest keys by which groups of runs can be told apart; none where settings do not."""
    jobs, offered, keys = [settings(group.runs[0].job) for group in found], offered_keys(found), list[str]()
    offered.sort(key=lambda key: key in LAST)
    while (parts := _parts(jobs, keys)) < len(found):
        best = max(offered, key=lambda key: _parts(jobs, [*keys, key]), default=None)
        if best is None or _parts(jobs, [*keys, best]) == parts or len(keys) == MOST_KEYS:
            return []
        keys.append(best)
    return [key for key in offered if key in keys]


def offered_keys(found: Sequence[Group]) -> list[str]:
    """Return the keys in which groups of runs differ, and in which the runs of none do."""
    several = any(len(group.runs) > 1 for group in found)
    offered = [key for key in varying([group.runs[0] for group in found]) if key != "seed" or not several]
    jobs = [settings(group.runs[0].job) for group in found]
    offered = [
        key for key in offered
        if all(len({shown(settings(run.job).get(key)) for run in group.runs}) == 1 for group in found)
    ]  # fmt: skip
    fewer = of_models(offered)
    return fewer if _parts(jobs, fewer) == _parts(jobs, offered) else offered


def free_keys(found: Sequence[Group]) -> list[str]:
    """Return the offered keys without those of an algorithm that its name tells, such as its one `mu`."""
    jobs, offered = [settings(group.runs[0].job) for group in found], offered_keys(found)
    many, table = _parts(jobs, [ALGORITHM]), ALGORITHM.removesuffix("name")
    return [
        key
        for key in offered
        if key == ALGORITHM or not key.startswith(table) or _parts(jobs, [ALGORITHM, key]) > many
    ]


def legends(found: Sequence[Group]) -> list[str]:
    """Return a name for each group of runs: all settings in which groups differ, else its folder.

    How many seeds it is the mean of is said where that differs.
    """
    jobs, offered = [settings(group.runs[0].job) for group in found], offered_keys(found)
    keys = [key for key in offered if key != "seed"]
    keys = keys if _parts(jobs, keys) == _parts(jobs, offered) else offered
    if len(keys) > MOST_NAMED:
        by_name = [ALGORITHM] if _parts(jobs, [ALGORITHM]) == len(jobs) else []
        keys = telling_keys(found) if any(len(group.runs) > 1 for group in found) else by_name
    other = any(
        trains_alone(group.runs[0].job) or any(_lacks(group.runs[0], key) for key in keys) for group in found
    )
    if (other or ALGORITHM in offered) and keys and ALGORITHM not in keys:
        keys = [ALGORITHM, *keys]
    jobs_names = [one_line(group.runs[0].job.get("name", "")) for group in found]
    plain = [group.name for group in found] if not all(jobs_names) or twice(jobs_names) else jobs_names
    names = [
        said(group.runs[0], keys) if keys else NAMES[name] for name, group in zip(plain, found, strict=True)
    ]
    names = [
        alone(group.runs[0], keys) if trains_alone(group.runs[0].job) else name
        for name, group in zip(names, found, strict=True)
    ]
    if several := twice(names):  # of one job, or cut
        names = [
            name if name not in several else
            f"{name} ({NAMES[group.name]})" if keys and len(group.runs) == 1 else one_line(group.name)
            for name, group in zip(names, found, strict=True)
        ]  # fmt: skip
    counts = [len(group.runs) for group in found]
    seeds = [f", {many} seed{'s' * (many > 1)}" if len({*counts}) > 1 else "" for many in counts]
    each = zip(found, names, seeds, strict=True)
    return [group.runs[0].called or name + of for group, name, of in each]


def twice(names: Sequence[str]) -> set[str]:
    """Return the names that several have."""
    return {name for name in names if names.count(name) > 1}


def with_names(summaries: Sequence[Summary], given: Sequence[str]) -> list[Summary]:
    """Return the runs, with the names that are given to settings as `SETTING=NAME`.

    Raises:
        InputError: there is no such setting, it has a name, or another has this name.
    """
    found = groups(summaries) if given else []
    offered, called = legends(found), dict[int, str]()
    for text in given:
        cuts = [at for at, one in enumerate(text) if one == "=" and text[at + 1 :].strip()]
        named = [(nth, text[at + 1 :].strip()) for at in cuts for nth, group in enumerate(found)
                 if text[:at] in (offered[nth], without_seeds(offered[nth], group), group.name)]  # fmt: skip
        if not named:
            why = (
                f"is no name for a setting; write --name SETTING=NAME, the settings are: {'; '.join(offered)}"
            )
            raise InputError(f"--name {text}: {why}")
        nth, name = named[-1]
        others = [*called.values(), *(one for other, one in enumerate(offered) if other != nth)]
        if nth in called or name in others:
            raise InputError(f"--name {text}: gives a second name, or the name of another; give each its own")
        called[nth] = one_line(name)
    of = {run.run: name for nth, name in called.items() for run in found[nth].runs}
    return [replace(run, called=of.get(run.run, "")) for run in summaries]


def without_seeds(name: str, group: Group) -> str:
    """Return a name without how many seeds it is the mean of; one that was given stays as it is."""
    return (
        name
        if group.runs[0].called
        else name.removesuffix(f", {len(group.runs)} seed{'s' * (len(group.runs) > 1)}")
    )


def said(run: Summary, keys: Sequence[str]) -> str:
    """Return a run's settings of some keys in a few words: `fedprox, lr 0.1`."""
    job, told = settings(run.job), list[str]()
    for key in (key for key in keys if not _lacks(run, key)):
        table, found = key.partition(".")[0], job.get(key)
        if found is None:
            what = short(key, keys) if table in run.job else LACKING.get(table, table)
            told.append(f"no {what or key}")
        elif isinstance(found, bool):
            told.append(f"{'no ' * (not found)}{short(key, keys)}")
        else:
            told.append(f"{short(key, keys)} {value(found)}".strip())
    return ", ".join(dict.fromkeys(told))


def alone(run: Summary, keys: Sequence[str]) -> str:
    """Return what a run is called whose silos train alone: its settings but for those of the algorithm."""
    name = said(run, [key for key in keys if not key.startswith("algorithm.")])
    return f"{EACH_ALONE} ({name})" if name else EACH_ALONE


def _lacks(run: Summary, key: str) -> bool:
    """Return whether a key makes no difference to the algorithm of a run, or that has no such key, or the
    server's step is the usual one in it."""
    job, (table, _, name) = settings(run.job), key.rpartition(".")
    if table == "local":
        return LOCAL.cells.get(str(job.get(ALGORITHM)), {}).get(name, "+").startswith(("-", "."))
    if key == f"{SERVER}.name":
        return job.get(key) == "sgd"
    if table == SERVER and job.get(key) is not None:
        return usual(key, job)
    return table in ("algorithm", SERVER) and job.get(key) is None


def short(key: str, keys: Sequence[str]) -> str:
    """Return the last part of a key where no other ends so; of a name nothing, since it speaks for itself.

    What belongs to the server's step says so, since silos have such keys, too.
    """
    table, _, last = key.rpartition(".")
    if table == SERVER:
        return f"server {last}".removesuffix(" name")
    alone = [other.rpartition(".")[2] for other in keys if not other.startswith(f"{SERVER}.")].count(
        last
    ) == 1
    return "" if last == "name" and alone else last if alone else key


def heading(key: str, keys: Sequence[str]) -> str:
    """Return what a table calls a key: as names of settings do, and what a name is of."""
    if key == f"{SERVER}.name":
        return "server optimizer"
    return short(key, keys) or key.removesuffix(".name")


def setting(run: Summary, key: str) -> str:
    """Return a run's setting as names of settings have it: silos that train alone have no algorithm."""
    if trains_alone(run.job) and key.startswith("algorithm."):
        return EACH_ALONE if key == ALGORITHM else "–"
    return value(settings(run.job).get(key))


def value(found: Any) -> str:
    """Return a setting in a line that is fit to be read."""
    return NAMES[shown(found).removesuffix(".0") if isinstance(found, float) else shown(found)]


def _parts(jobs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
    return len({tuple(shown(job.get(key)) for key in keys) for job in jobs})
