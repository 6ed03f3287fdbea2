"""The silos under each of several settings, and what they gain over a reference that is named."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean
from typing import Any

from mpifl.common import Names
from mpifl.common.pages import Cell, Figure, Table, charts
from mpifl.learning.metrics import MetricInfo
from mpifl.report.findings import Gain, gained, gains, held_against, values, without_alike
from mpifl.report.judging import NAMES, scores
from mpifl.report.runs import (
    HEADS,
    SERVER,
    Held,
    Standing,
    Summary,
    alike_told,
    as_counted,
    cells_against,
    chance,
    examples,
    held_to,
    named,
    of_several_shards,
    one_class,
    rows_left_out,
    trained_on,
    trains_alone,
    words_against,
)
from mpifl.run.folder import number, read_environment, same_data

MOST_SILOS, MOST_NAMED, MOST_TOLD = 200, 6, 3
NO_REFERENCE = "No setting is a clear reference, so gains are not shown. Name one with --against."


def reference_of(found: Sequence[Standing], against: str | None) -> Standing | None:
    """Return what silos are held against: what is named, else each alone, else the one setting of fedavg.

    Each alone is Ditto with lambda 0. Where there is neither, there is no reference: the best is none.

    Raises:
        InputError: no setting has the name that is given.
    """
    if against is not None:
        return named(found, against)
    alone = [one for one in found if trains_alone(one.group.runs[0].job)]
    usual = [one for one in found if _algorithm(one).get("name") == "fedavg"]
    return alone[0] if alone else usual[0] if len(usual) == 1 else None


def _algorithm(one: Standing) -> Mapping[str, Any]:
    """Return the table of a setting's algorithm."""
    found = one.group.runs[0].job.get("algorithm")
    return found if isinstance(found, Mapping) else {}


def counted(summaries: Sequence[Summary]) -> tuple[list[Summary], dict[str, Held], list[str]]:
    """Return runs as they are told where what each silo holds is known, that, and which rows the partition
    left out, where all runs are of the same shards and these can be read."""
    first, held, lost = summaries[0] if summaries else None, dict[str, Held](), list[str]()
    if first is not None and all(same_data(first.data, run.data) for run in summaries):
        ran = read_environment(first.run)
        spec = trained_on(first, ran)
        held, lost = examples(first, spec, Names(ran.get("silos", ())), ran), rows_left_out(spec)
    return [as_counted(run, held) for run in summaries], held, lost


def _by_seed(one: Standing) -> dict[str, dict[Hashable, float]]:
    """Return each silo's main metric for each seed, of silos that all its runs have scored."""
    each = {run.job.get("seed"): values(run) for run in one.group.runs}
    common = set.intersection(*(set(of) for of in each.values()))
    first = next(iter(each.values()))
    return {name: {seed: of[name] for seed, of in each.items()} for name in first if name in common}


def _means(one: Standing) -> dict[str, float]:
    return {name: fmean(of.values()) for name, of in _by_seed(one).items()}


def _over(one: Standing, against: Standing, held: Mapping[str, Held]) -> dict[str, Gain]:
    """Return what each silo gains by a setting; nothing where the settings are of other shards."""
    if not same_data(one.group.runs[0].data, against.group.runs[0].data):
        return {}
    if len({run.silo_rows for of in (one, against) for run in of.group.runs}) > 1:
        return {}
    served, beside = _by_seed(one), _by_seed(against)
    tests = {name: chance.over_seeds(of, beside[name]) for name, of in served.items() if name in beside}
    return gains(_means(one), _means(against), one.metric, held, tests)


def silos_of_settings(
    found: Sequence[Standing], against: Standing | None, held: Mapping[str, Held], asked: bool = False
) -> tuple[Figure | None, list[dict[str, Gain]]]:
    """Return a row for each silo: what settings give it; and what each gives over the reference.

    Args:
        found: The settings, the best first.
        against: The reference, if there is one.
        held: What each silo holds, as far as that is known.
        asked: Whether the reference was named by the user.
    """
    if any(of_several_shards(one.group) for one in found):
        return None, []  # a silo's name is another silo in other shards
    metric, base = found[0].metric, {} if against is None else _means(against)
    others = [one for one in found if one is not against]
    shown = others[: len(charts.COLOURS)]
    over = [_over(one, against, held) if against else {} for one in others]
    means = [_means(one) for one in shown]
    if (not base or not any(over)) if against else sum(map(bool, means)) < 2:
        return None, []
    rows = []
    for name in list(base or dict.fromkeys(name for of in means for name in of))[:MOST_SILOS]:
        cells = [Cell(name), *([Cell(metric.write(base[name]), base[name])] if against else [])]
        for of, gains_of in zip(means, over, strict=False):
            served, gain = of.get(name), gains_of.get(name)
            cells.append(Cell("–", "") if against and gain is None else _served(served, gain, metric))
        rows.append(cells)
    note, heads = f"{_whose(found)}. ", [one.name for one in shown]
    note += f"{_without(found, held)} ".lstrip()
    if against is None:
        table = Table(["silo", *heads], rows, sort=True)
        return Figure("Scores of each silo", note + NO_REFERENCE, [table], wide=True), []
    why = _why(against, asked)
    note += f"The first column, {against.name}, is the reference of all changes, since {why}. "
    more, how = held_against(gain for of in over[: len(shown)] for gain in of.values())
    note, how = note + more, f"{how} The chart has all changes of {heads[0]}.".lstrip()
    changes = [over[0].get(row[0].text) for row in rows]
    told = [(of.write(metric), of.by, *(of.reach or (of.by, of.by))) if of else None for of in changes]
    drawn, axis = drawn_around_zero(told, metric)
    head = f"{heads[0]}, change"
    rows = [[*row[:2], cell, *row[2:]] for row, cell in zip(rows, drawn, strict=True)]
    table = Table(["silo", against.name, head, *heads], rows, sort=True, axes={head: axis})
    silos = Figure("Which silos gain?", note, [table], wide=True, how=how)
    return silos, over if shown[0] is found[0] else []


def _whose(found: Sequence[Standing]) -> str:
    seeds = ", as means over seeds" * any(len(one.group.runs) > 1 for one in found)
    return f"Scores are on each silo's {_rows_of(found)}{seeds}"


def _rows_of(found: Sequence[Standing]) -> str:
    """Say which rows of silos their scores are of."""
    kinds = sorted({run.silo_rows for one in found for run in one.group.runs} - {""})
    return " or ".join(kinds) or "held-out examples"


def drawn_around_zero(
    found: Sequence[tuple[str, float, float, float] | None], metric: MetricInfo
) -> tuple[list[Cell], list[str]]:
    """Draw differences with their intervals; return a cell for each, and what is written below their axis.

    Args:
        found: The words of each, itself, and the ends of its interval; None of one that is not known.
        metric: What they are of.
    """
    most = charts.ticks(0.0, max((abs(end) for one in found if one for end in one[1:]), default=1.0))[-1]
    scale, end = charts.Scale(-most, most), f"{100 * most if metric.share else most:g}"
    cells = []
    for one in found:
        by, low, high = (100 * scale(of) for of in one[1:]) if one else (0, 0, 0)
        cells.append(Cell(one[0], one[1], dots=[by], span=(low, high), zero=50) if one else Cell("–", ""))
    return cells, [f"−{end}", "0", f"+{end}"]


def _served(served: float | None, gain: Gain | None, metric: MetricInfo) -> Cell:
    """Return what a setting gives a silo, and its gain where one is seen."""
    if served is None:
        return Cell("–", "")
    change = f" {gain.write(metric)}" if gain and gain.seen is not False else ""
    return Cell(metric.write(served) + change, served, gain.look if gain else "")


def _why(reference: Standing, asked: bool) -> str:
    """Say why a setting is the reference."""
    if asked:
        return "--against names it"
    alone = trains_alone(reference.group.runs[0].job)
    return "its silos train alone" if alone else "it is the only setting of fedavg, the usual algorithm"


def _without(found: Sequence[Standing], held: Mapping[str, Held]) -> str:
    """Say which silos have rows of one class, and which have no value and are left out."""
    metric, alike, without = found[0].metric, alike_of(found, held), dict[str, None]()
    for told in (scores(run) for one in found for run in one.group.runs):
        without |= dict.fromkeys(name for name, of in told.items() if number(of, metric.name) is None)
    rest = [name for name in without if name not in alike or metric.name != "auroc"]
    said = f" Left out, since their rows have no {metric.label}: {NAMES.listed(rest, MOST_NAMED)}."
    return f"{alike_told(alike, metric)}{said * bool(rest)}".strip()


def alike_of(found: Sequence[Standing], held: Mapping[str, Held]) -> list[str]:
    """Return the silos whose scored rows have one class."""
    told = [scores(run) for one in found for run in one.group.runs]
    each = (name for silos in told for name, of in silos.items() if one_class(of, held.get(name)))
    return [*dict.fromkeys(each)]


def without_one_class(found: Sequence[Standing], held: Mapping[str, Held]) -> list[str]:
    """Say what the first two settings have without silos of one class, where all rows together rank them."""
    alike, told = alike_of(found, held), list[str]()
    by = judged.curve() if found and (judged := found[0].judged) else None
    for one in found[:2] if alike else ():
        rest = [(of, held[name].out) for name, of in _means(one).items() if name in {*held} - {*alike}]
        if (rows := sum(out for _, out in rest)) and chance.counts(one.metric) and by == one.metric.pooled:
            told.append(f"{one.name} has {one.metric.write(sum(of * out for of, out in rest) / rows)}")
    return [f"Without the rows of {NAMES.listed(alike, MOST_NAMED)}, {' and '.join(told)}."] if told else []


def gained_by_first(
    over: Sequence[Mapping[str, Gain]],
    found: Sequence[Standing],
    reference: Standing,
    held: Mapping[str, Held],
) -> str:
    """Say what the silos gain by the first setting over the reference; `over` has the gains of all."""
    server = found[0].judged is not None and found[0].judged.rows == SERVER
    rows = f"On each silo's {_rows_of(found)}" + f", not on {SERVER}" * server
    said = gained(over[0], found[0].metric, reference.name, found[0].name, over[1:], f"{rows}, the")
    return said + without_alike(over[0], alike_of(found, held), found[0].metric)


def each_against(found: Sequence[Standing], against: str | None) -> Figure | None:
    """Return a row for each setting: how it is held against a reference that is named; None without one."""
    if against is None:
        return None
    reference = named(found, against)
    rows = [
        [Cell(str(one["setting"])), *map(Cell, cells_against(one, reference.metric))]
        for one in held_to(found, reference)
    ]
    heads = ["setting", f"over {reference.name}", *HEADS[1:3]]
    title = f"Each setting against {reference.name}"
    return Figure(title, words_against(found, reference), [Table(heads, rows)], wide=True)
