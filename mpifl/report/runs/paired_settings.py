"""Every two settings held against each other, and all against one that was chosen beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from rich.table import Table

from mpifl.common import InputError
from mpifl.learning.metrics import MetricInfo
from mpifl.report.runs import chance, units
from mpifl.report.runs.chance import Difference
from mpifl.report.runs.ranking_figure import name_of
from mpifl.report.runs.run_summary import Summary
from mpifl.report.runs.standings import HEADS, Standing, rivals, standings_of, tested

HELD_TO = ("difference", "low", "high", "level", "p", "p_holm", "test")
"""What a test says of two settings: the difference of means, positive where the first is better."""
OF_TEST = ("behind", "low", "high", "level", "p", "p_holm", "test", "seen")
BY_ROWS = ("low_by_rows", "high_by_rows", "level_by_rows")
COLUMNS = (
    "setting",
    *(f"setting_{what}" for what in ("seeds", "mean", "deviation", *OF_TEST, *BY_ROWS, "judged_by")),
)
"""What the file of all runs says of each run's setting."""
PAIRED = ("setting", "other", *HELD_TO)
"""What is told of each two settings."""


def pairs(found: Sequence[Standing]) -> list[dict[str, object]]:
    """Return of each two settings, the better mean first, what a test says; p is corrected for all pairs."""
    each = [(one, other, tested(one, other)) for one, other in combinations(found, 2)]
    return _with_holm([(one.name, {"other": other.name}, test) for one, other, test in each])


def named(found: Sequence[Standing], against: str) -> Standing:
    """Return the setting of this name.

    Raises:
        InputError: there is none.
    """
    if one := next((one for one in found if against in (one.name, one.group.name)), None):
        return one
    offered = "; ".join(one.name for one in found) or "none that is ranked"
    raise InputError(f"--against {against}: is not a setting of these runs; they are: {offered}")


def held_to(found: Sequence[Standing], reference: Standing) -> list[dict[str, object]]:
    """Return what a test says of each other setting and a reference that was chosen beforehand.

    A positive difference is the better. p is corrected by Holm for these settings, and not for all pairs.
    """
    others = [one for one in found if one is not reference]
    return _with_holm([(one.name, {}, tested(one, reference)) for one in others])


def _with_holm(
    each: Sequence[tuple[str, dict[str, object], Difference | None]],
) -> list[dict[str, object]]:
    corrected, told = iter(chance.holm([test for _, _, test in each if test])), []
    for name, more, test in each:
        said: Sequence[object] = [None] * len(HELD_TO)
        if test:
            of, p = next(corrected)
            said = of.by, *of.reach, of.level, of.p, p, name_of(of)
        told.append({"setting": name, **more, **dict(zip(HELD_TO, said, strict=True))})
    return told


def cells_against(one: Mapping[str, Any], metric: MetricInfo) -> list[str]:
    """Return what HELD_TO says, as tables have it: the difference, its interval and p, both corrected."""
    if one["p"] is None:
        return ["-"] * 3
    by = ("+" if one["difference"] > 0 else "") + units.points(one["difference"], metric)
    reach = units.between(one["low"], one["high"], metric)
    return [by, reach, f"{units.probability(one['p_holm'])} {one['test']}"]


def table_against(found: Sequence[Standing], reference: Standing) -> Table:
    """Return a table of each setting against the reference."""
    table = Table()
    table.add_column("setting", overflow="fold")
    for heading in (f"over {reference.name}", *HEADS[1:3]):
        table.add_column(heading, justify="right")
    for one in held_to(found, reference):
        table.add_row(str(one["setting"]), *cells_against(one, reference.metric))
    return table


def words_against(found: Sequence[Standing], reference: Standing) -> str:
    """Say what the tests against a reference are."""
    many = sum(one["p"] is not None for one in held_to(found, reference))
    if not many:
        return f"A single seed cannot show a difference to {reference.name}."
    return f"Interval and p are corrected by Holm for the {many:,} settings held against {reference.name}."


def as_columns(found: Sequence[Standing], against: str) -> dict[object, dict[str, object]]:
    """Return by setting what the file of all runs says of it and the reference; by None of a run of none."""
    told = {one["setting"]: one for one in held_to(found, named(found, against))}
    return {
        name: {"against": against, **{f"against_{what}": told.get(name, {}).get(what) for what in HELD_TO}}
        for name in (None, *(one.name for one in found))
    }


def _for_paper(found: Sequence[Standing], reference: Standing) -> dict[object, dict[str, Any]]:
    """Return by setting what a test says of it and a reference.

    Interval and p are corrected by Holm: against the first, which the results chose, for all pairs; against
    another for those that are held against it.
    """
    told = {one["setting"]: one for one in held_to(found, reference)}
    if reference is found[0]:
        told = {
            one.standing.name: told[one.standing.name]
            | {"low": one.test and -one.test.high, "high": one.test and -one.test.low, "p_holm": one.p}
            | {"level": one.test and one.test.level}
            for one in rivals(found)
        }
    return told


def paper_columns(found: Sequence[Standing], reference: Standing, name: str) -> list[tuple[str, list[str]]]:
    """Return columns of the difference to a reference, its interval and p, if a test tells of one.

    `name` is the reference's as LaTeX prints it.
    """
    told = _for_paper(found, reference)
    if all(one["p"] is None for one in told.values()):
        return []
    metric, rows = reference.metric, []
    for one in found:
        cells = cells_against(told[one.name], metric) if one is not reference else [""] * 3
        by, reach, p = (cell.removesuffix(f" {units.POINTS}") for cell in cells)
        p = p.removesuffix(" paired").removesuffix(" Welch")
        by, reach = by.replace("−", "-"), units.escaped(reach)
        rows.append([f"${by}$" if by.strip("-") else by, reach, f"${p}$" if p.strip("-") else p])
    several, unit = ["Holm"] * (len(found) > 2), [units.POINTS] * metric.share
    of = ("over " + name, unit), (r"95\% interval", [*unit, *several]), ("$p$", several)
    heads = [f"{head} ({', '.join(more)})" if more else head for head, more in of]
    return [(head, [row[nth] for row in rows]) for nth, head in enumerate(heads)]


def levels_told(found: Sequence[Standing], reference: Standing) -> list[str]:
    """Say of which level the interval of each setting is, where Holm gives several."""
    each = [(name, one["level"]) for name, one in _for_paper(found, reference).items() if one["level"]]
    if len(each) < 2:
        return []
    return [f"Levels of the intervals: {'; '.join(f'{name} {level:.4g}' for name, level in each)}."]


def of_settings(found: Sequence[Standing]) -> list[dict[str, object]]:
    """Return what COLUMNS says of each setting, the best first; None is what nobody can tell."""
    told = []
    for one, rival in zip(found, [None, *rivals(found)], strict=True):
        test = rival.test if rival else None
        said = [one.name, len(one.ends), one.mean, one.deviation, rival.behind if rival else 0.0]
        said += [*test.reach, test.level, test.p] if test else [None] * 4
        said += [rival.p if rival else None, name_of(test) if test else None]
        rows = rival.rows if rival else None
        said += [rival.seen if test and rival else None]
        said += [*rows.reach, rows.level] if rows else [None] * len(BY_ROWS)
        said.append(one.judged.words() if one.judged else None)
        told.append(dict(zip(COLUMNS, said, strict=True)))
    return told


def of_runs(summaries: Sequence[Summary]) -> dict[Path, list[object]]:
    """Return what COLUMNS says of each run that has been judged."""
    found = standings_of(summaries)
    told = [list(one.values()) for one in of_settings(found)]
    return {run.run: said for one, said in zip(found, told, strict=True) for run in one.group.runs}


def table_of_settings(found: Sequence[Standing]) -> Table | None:
    """Return a table of the settings, the best first, where seeds tell of a difference."""
    others = rivals(found)
    if not any(one.test or one.rows for one in others):
        return None
    table = Table()
    table.add_column("setting", overflow="fold")
    for heading in (found[0].metric.label, "seeds", *HEADS):
        table.add_column(heading, justify="right")
    for one, cells in zip(found, [[""] * len(HEADS), *(rival.cells() for rival in others)], strict=True):
        table.add_row(one.name, one.written(), str(len(one.ends)), *cells)
    return table
