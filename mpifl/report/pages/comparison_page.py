"""Settings side by side as a page: which is best by more than seeds differ, their curves, who gains."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from urllib.parse import quote

from mpifl.common import count_of
from mpifl.common.pages import Block, Cell, Figure, Fold, Said, Table, charts, render, there
from mpifl.report.findings import collapses, next_figure, next_of_settings, to_do, warnings_of
from mpifl.report.judging import scores
from mpifl.report.observers import HELD_OUT
from mpifl.report.pages.compared_silos import (
    counted,
    each_against,
    gained_by_first,
    reference_of,
    silos_of_settings,
    without_one_class,
)
from mpifl.report.pages.grid import grid_of_settings
from mpifl.report.pages.run_page import write_report
from mpifl.report.pictures import AXES, curve, group_looks, lie_above, lying
from mpifl.report.runs import (
    HEADS,
    SERVER,
    Group,
    Rival,
    Standing,
    Summary,
    briefly,
    by_other_rows,
    columns_of,
    corrected,
    curve_legends,
    fitting,
    groups,
    headline,
    judged_by_all,
    labels,
    level_of,
    metrics_of,
    ranked_by,
    read_runs,
    rivals,
    settings,
    standings_of,
    to_target,
    trains_alone,
    units,
    verdict,
    whose,
    why_not_ranked,
)

ROOM, LONGEST, BESIDE = 120, 28, 9
"""Characters of a row of all runs on a desk, of a run's name there at most, and of a setting."""
DOTS, MISSED, POINTS = "one dot per seed", "not reached", "points"
P = 2
"""The place of p in HEADS."""
NEAR = 3
"""Ends are on the axis if they are so many times as far from the best one as the median is."""
TEST = (
    "A t-test over the seeds compares each setting with the first, which has the best mean. It is paired "
    "where both have the same seeds, else Welch's."
)
EACH = (
    "Each dot is a run with its own seed; the line is the deviation. Worst silo: the mean over seeds where "
    "it differs, then the worst of all with its silo and seed. "
)
MEANS = " Traffic and time are means per run."
BY_ROWS = (
    "The interval by rows is what chance makes of the {:,} rows that judge, for one model of each setting "
    "that has the mean. Which answers differ is not recorded, so it is the widest possible. The interval of "
    "each setting is of this figure alone, not corrected: it compares nothing."
)


def compare_page(
    summaries: Sequence[Summary],
    left_out: Mapping[Path, str],
    target: float | None,
    path: Path,
    title: str,
    against: str | None = None,
) -> str:
    """Return the page of some runs.

    Args:
        left_out: Why others cannot be read.
        target: A value of the main metric to mark.
        path: Where the page will lie: links to the runs' own pages start there.
        against: The setting that silos' figures are held against, by its name on the page.

    Raises:
        InputError: there is no such setting.
    """
    summaries, held, lost = counted(summaries)
    found, drawn = standings_of(summaries), list[Figure | None]()
    said, more = (told := verdict(found))[: (lead := 1 + len(by_other_rows(found)))], told[lead:]
    if found and target is not None and all(_to_target(one, target).text == MISSED for one in found):
        said.append(f"No setting reached the target, {found[0].metric.write_briefly(target)}.")
    steps = next_of_settings(found, to_do(bad := collapses(found, held)))
    more += [*ranked_by(found), *without_one_class(found, held), *lost]
    if found:
        reference = reference_of(found, against)
        silos, over = silos_of_settings(found, reference, held, against is not None)
        drawn = [_settings(found, target, path), next_figure(steps), each_against(found, against)]
        drawn += [grid_of_settings(found, partial(_led, path)), *_panels(found, target), silos]
        if reference and any(over[:1]):
            said.append(gained_by_first(over, found, reference, held))
    (more if said else said).append(_accounted(summaries, left_out, found))
    return render(
        "compare.html",
        title=title, every=None, broad=True, verdict=said, warnings=warnings_of(bad), steps=steps, more=more,
        what=" · ".join(_words(summaries, len(summaries) + len(left_out))),
        figures=there(drawn),
        folds=there([_remarks(summaries, left_out), _table(summaries, target, path)]),
    )  # fmt: skip


def _words(summaries: Sequence[Summary], runs: int) -> list[str]:
    """Say what was compared, and what is the same in all of the runs."""
    each = [headline(run.job) for run in summaries]
    silos = {len(scores(run)) for run in summaries} - {0}
    return [
        count_of(runs, "run"),
        count_of(len(groups(summaries)), "setting"),
        *(word for word in each[0] if all(word in words for words in each)),
        *([count_of(silos.pop(), "silo")] if len(silos) == 1 else []),
    ]


def _accounted(summaries: Sequence[Summary], left_out: Mapping[Path, str], found: Sequence[Standing]) -> str:
    """Say how many runs are ranked, and which others are not."""
    judged, many, name = found[0].judged if found else None, len(summaries) + len(left_out), called(summaries)
    if not ranked_by(found):
        why = ": all have diverged" if summaries and all(run.diverged for run in summaries) else ""
        why = why or ": no main metric is common to all of them" * (not found)
        return f"No run is ranked{why}."
    ranked = [run for one in found for run in one.group.runs if judged is None or run not in judged.without]
    told = [*ranked, *(judged.without if judged else ())]  # the verdict names those without
    out = [f"{run.name} ({briefly(run, reason)})" for run, reason in left_out.items()]
    out += [f"{name[run.run]} ({why_not_ranked(run, summaries)})" for run in summaries if run not in told]
    return f"{len(ranked):,} of {many:,} runs are ranked." + f" Left out: {', '.join(out)}." * bool(out)


def best_run(summaries: Sequence[Summary]) -> Summary | None:
    """Return the run that ended with the best value of its main metric, of those that have one."""
    ends = {run.run: end for run in summaries if (end := _end(run)) is not None}
    top = summaries[0].metric.best(ends.values(), default=None)
    return next((run for run in summaries if ends.get(run.run) == top), None) if ends else None


def write_best(runs: Sequence[Path], search: bool = False) -> None:
    """Write the page of the best of some runs, if one can be told, so that others may lead there."""
    summaries, _ = read_runs(runs, search)
    if summaries and len(metrics_of(summaries)) == 1 and (best := best_run(summaries)) is not None:
        write_report(best.run)


def _end(run: Summary) -> float | None:
    judged = judged_by_all([Group("", [run])])
    return judged.value(run) if judged and not run.diverged else None


def _place(run: Summary) -> tuple[bool, float]:
    """Return what sorts runs by how they ended, the best first."""
    end = _end(run)
    return end is None, (end or 0.0) * (-1 if run.metric.higher_is_better else 1)


def called(summaries: Sequence[Summary]) -> dict[Path, str]:
    """Return what each run is called: the shortest path that tells its folder from the others."""
    return dict(zip((run.run for run in summaries), labels(summaries), strict=True)) if summaries else {}


def _link(run: Summary, path: Path) -> str:
    """Return where a run's own page lies as seen from this one; "" if there is none."""
    page = run.run / "report.html"
    return quote(os.path.relpath(page, path.parent)) if page.exists() else ""


def _led(path: Path, one: Standing) -> str:
    """Return where the page of a setting's best run lies; "" if there is none."""
    return _link(best, path) if (best := best_run(one.group.runs)) else ""


def _remarks(summaries: Sequence[Summary], left_out: Mapping[Path, str]) -> Fold | None:
    """Return what is to be said against some runs, in the part that the table's readers come to next."""
    name = called(summaries)
    rows = [[name[run.run], one] for run in summaries for one in (run.stopped, *run.remarks) if one]
    rows += [[run.name, f"left out: {reason}"] for run, reason in left_out.items()]
    return Fold(f"Remarks ({len(rows)})", [Table.of(["run", "reason"], rows)], opened=True) if rows else None


def _settings(found: Sequence[Standing], target: float | None, path: Path) -> Figure:
    """Return a row for each setting, the best first: its mean, a dot a seed, what it cost."""
    metric, (place, axis), others = found[0].metric, _places(found), rivals(found)
    several = any(len(one.ends) > 1 for one in found)
    told = [nth for nth, _ in enumerate(HEADS) if any(one.cells()[nth] != "-" for one in others)]
    unit = [f", {POINTS}" * (metric.share and nth != P) for nth, _ in enumerate(HEADS)]
    judged = found[0].judged
    by_rows = [one.judged.interval(one.mean) if one.judged else None for one in found]
    heads = [metric.label + " ± deviation over seeds" * several]
    heads += [f"its 95% interval, {judged.examples:,} rows"] if judged and all(by_rows) else []
    heads += [DOTS, *(HEADS[nth] + unit[nth] for nth in told), found[0].worst_head]
    heads += [] if target is None else [f"rounds to {metric.write_briefly(target)}"]
    rows = []
    for one, rival, reach in zip(found, [None, *others], by_rows, strict=True):
        low, high = (min(max(place(one.mean + by), 0.0), 100.0)
                     for by in (-(one.deviation or 0.0), one.deviation or 0.0))  # fmt: skip
        ends = [at for end in one.ends if 0 <= (at := place(end)) <= 100]
        dots = Cell(
            "; ".join(map(metric.write, one.ends)), dots=ends, span=(low, high) if low < high else None
        )
        dots = dots if ends else Cell("off the axis", "")
        row = [Cell(one.name, link=_led(path, one)), Cell(one.written(), one.mean)]
        row += [Cell(units.reach(reach, metric), one.mean, "between")] if reach else []
        row += [dots, *(_against(rival)[nth] for nth in told)]
        row.append(Cell(one.worst_told(), fmean(worst) if (worst := one.of_silos("worst")) else "", "text"))
        row += [] if target is None else [_to_target(one, target)]
        row.append(_mean(one, target, units.size, "bytes_sent", "bytes_received"))
        rows.append([*row, _mean(one, target, units.seconds, "seconds")])
    how = [TEST] * any(one.test for one in others) + corrected(found)
    how += [BY_ROWS.format(judged.examples)] if judged and any(one.rows for one in others) else []
    note = EACH * several + "Time is without scoring and checkpoints." + MEANS * several
    table = Table(["setting", *heads, "traffic", "time"], rows, sort=True, axes={DOTS: axis})
    return Figure("Settings, the best first", note, [table], wide=True, how=" ".join(how))


def _against(rival: Rival | None) -> list[Cell]:
    """Return what HEADS says of a setting; nothing of the first."""
    if rival is None:
        return [Cell("", 0.0), *[Cell("", "")] * (len(HEADS) - 1)]
    look, test, rows = "worst" if rival.seen and not rival.may_turn else "", rival.test, rival.rows
    values = rival.behind, test.low if test else None, rival.p, rows.low if rows else None
    each = zip(rival.cells(), values, (look, "between", look, "between"), strict=True)
    return [
        Cell("–", "") if value is None or text == "-" else Cell(text.removesuffix(f" {POINTS}"), value, of)
        for text, value, of in each
    ]


def _places(found: Sequence[Standing]) -> tuple[Callable[[float], float], list[str]]:
    """Return what places a value, in per cent, and the ends of this axis, which is of the best: others lie
    beyond it."""
    ends = [end for one in found for end in one.ends]
    top = found[0].metric.best(ends)
    far = max(NEAR * abs(top - median(ends)), 0.01 * found[0].metric.share)
    near = [end for end in ends if abs(top - end) <= far]
    scale, axis = units.axis(near, found[0].metric)
    return lambda value: round(100 * scale(value), 6), axis


def _to_target(one: Standing, target: float) -> Cell:
    """Return the mean round of the target, or how many seeds have missed it."""
    many = len(one.group.runs)
    at = [at for run in one.group.runs if (at := run.reached(target)) is not None]
    if any(run.missing for run in one.group.runs):
        return Cell("–", "")
    if len(at) < many:
        return Cell(MISSED if not at else f"reached by {len(at)} of {many} seeds", "")
    return Cell(f"{fmean(at):.0f}", fmean(at))


def _mean(one: Standing, target: float | None, write: Callable[[float], str], *figures: str) -> Cell:
    """Return the mean over seeds of a sum of figures, where all runs have them."""
    sums = one.sums(target, *figures)
    return Cell(write(fmean(sums)), fmean(sums)) if sums else Cell("–", "")


def _panels(found: Sequence[Standing], target: float | None) -> list[Figure | None]:
    """Draw the main metric of the best settings over rounds, over bytes and over seconds."""
    metric, most = found[0].metric, len(charts.COLOURS)
    runs = [run for one in found for run in one.group.runs]
    figure = found[0].judged.curve() if found[0].judged else metric.test
    looks = group_looks([one.group for one in found])
    alone = {one.name for one in found if trains_alone(one.group.runs[0].job)}  # their traffic is of no use
    curves = [(one.name, each, look.page) for one, look in zip(found[:most], looks, strict=False)
              if (each := curve(one.group, figure)) is not None]  # fmt: skip
    note = f"The chart has the {most} best of {len(found)} settings." if len(found) > most else ""
    note += " Each line is the mean over seeds." if any(len(one.ends) > 1 for one in found) else ""
    where = SERVER if figure == metric.test else HELD_OUT
    where = "validation rows" if any(run.by_valid for run in runs) else where
    note += f" Each round is scored on {where}."
    panels = []
    for along, which in AXES:
        shown = [one for one in curves if which != 1 or one[0] not in alone]
        lines = []
        for name, each, look in shown:
            points = list(zip(each.at[which].tolist(), each.mean.tolist(), strict=True))
            lines.append(charts.Line(name, points, look, metric.write(float(each.mean[-1]))))
        above = lie_above([each for _, each, _ in shown], which)
        title = f"{metric.title} over {along}{'s' if which == 0 else ''}"
        said = f"{note} Values beside names are of the last round." if which == 0 else note
        how = lying([name for name, *_ in shown], above).strip()
        covers = units.two_points(found[0].mean) if metric.share else ()
        drawn = charts.lines(title, lines, None, metric.write_briefly, target, note=said, along=along,
                             wide=which == 0, covers=covers)  # fmt: skip
        panels.append(replace(drawn, how=how) if drawn else None)
    return panels


def _table(summaries: Sequence[Summary], target: float | None, path: Path) -> Fold:
    """Return a row for each run: its settings that differ, and all figures."""
    summaries = sorted(summaries, key=_place)
    figures = [run.figures(target) for run in summaries]
    keys = curve_legends.telling_keys([Group(str(run.run), [run]) for run in summaries])
    level, rows = level_of(summaries, target), []
    offered = [c for c in columns_of(summaries) if any(each.get(c.figure) is not None for each in figures)]
    name, jobs = called(summaries), [settings(run.job) for run in summaries]
    wide = [max(BESIDE, *(len(curve_legends.setting(run, key)) + 2 for run in summaries)) for key in keys]
    room = ROOM - min(max(map(len, name.values())), LONGEST) - sum(wide) - 3 * BESIDE * (level is not None)
    columns = fitting(offered, figures, room, metrics_of(summaries))
    for run, job, each in zip(summaries, jobs, figures, strict=True):
        row = [Cell(name[run.run], str(run.run), link=_link(run, path))]
        row += [Cell(curve_legends.setting(run, key), str(job.get(key, ""))) for key in keys]
        row.append(Cell(str(run.rounds), run.rounds))
        for column in columns:
            figure = each.get(column.figure)
            row.append(Cell(column.show(figure), "" if figure is None else figure))
        rounds = each.get("rounds_to_target")
        row += [] if target is None else [Cell(to_target(run, each), "" if rounds is None else rounds)]
        rows.append(row)
    named = [curve_legends.heading(key, keys) for key in keys]
    heads = [*(column.heading for column in columns), *([f"to {level}"] if level else [])]
    found: list[Block] = [Table(["run", *named, "rounds", *heads], rows, sort=True)]
    found.append(Said(f"Figures: {whose(summaries)}.", "soft"))
    if len(columns) < len(offered):
        more = ", ".join(column.heading for column in offered if column not in columns)
        found.append(Said(f"Not shown for lack of space: {more}. The file of --csv has them.", "soft"))
    return Fold("Every run", found)
