"""Runs side by side as a page: what a grid of them came to, their curves, a table to sort."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from urllib.parse import quote

from mpifl.common.pages import Cell, Figure, Fold, Table, charts, render, there
from mpifl.learning.metrics import MetricInfo
from mpifl.report.pages.curves import AXES, Curve, curve, judged_figure
from mpifl.report.pages.grid import Tried, grid
from mpifl.report.pages.run_page import write_report
from mpifl.report.runs import (
    Group,
    Summary,
    columns_of,
    curve_legends,
    groups,
    level_of,
    metrics_of,
    read_runs,
    settings,
    to_target,
)
from mpifl.run.folder import number


def compare_page(
    summaries: Sequence[Summary], left_out: Mapping[Path, str], target: float | None, path: Path, title: str
) -> str:
    """Return the page of some runs.

    Args:
        summaries: The runs.
        left_out: Why others cannot be read.
        target: A value of the main metric to mark.
        path: Where the page will lie: links to the runs' own pages start there.
        title: Its heading.
    """
    found, metrics = groups(summaries), metrics_of(summaries)
    best = best_run(summaries) if len(metrics) == 1 else None
    drawn: list[Figure | None] = []
    if len(metrics) == 1:
        drawn = [_grid(found, metrics[0], path), *_panels(found, metrics[0], target)]
    drawn.append(_table(summaries, target, best, path))
    return render(
        "compare.html",
        title=title,
        every=None,
        broad=False,
        words=f"{len(summaries)} run{'s' * (len(summaries) > 1)}",
        best=_best(best, path),
        figures=there(drawn),
        folds=there([_remarks(summaries, left_out)]),
    )


def best_run(summaries: Sequence[Summary]) -> Summary | None:
    """Return the run that ended with the best value of its main metric, of those that have one."""
    ends = {run.run: end for run in summaries if (end := _end(run)) is not None}
    top = summaries[0].metric.best(ends.values(), default=None)
    return next((run for run in summaries if ends.get(run.run) == top), None) if ends else None


def write_best(runs: Sequence[Path]) -> None:
    """Write the page of the best of some runs, if one can be told, so that others may lead there."""
    summaries, _ = read_runs(runs)
    if summaries and len(metrics_of(summaries)) == 1 and (best := best_run(summaries)) is not None:
        write_report(best.run)


def _end(run: Summary) -> float | None:
    return number(run.last, judged_figure([run], run.metric))


def _place(run: Summary) -> tuple[bool, float]:
    """Return what sorts runs by how they ended, the best first."""
    end = _end(run)
    return end is None, (end or 0.0) * (-1 if run.metric.higher_is_better else 1)


def _best(best: Summary | None, path: Path) -> dict[str, str] | None:
    if best is None or (end := _end(best)) is None:
        return None
    metric = best.metric
    return {"name": called(best), "link": _link(best, path), "metric": metric.name, "end": metric.write(end)}


def called(run: Summary) -> str:
    """Return the name of a run's folder."""
    return run.run.absolute().name


def _link(run: Summary, path: Path) -> str:
    """Return where a run's own page lies as seen from this one; "" if there is none."""
    page = run.run / "report.html"
    return quote(os.path.relpath(page, path.parent)) if page.exists() else ""


def _remarks(summaries: Sequence[Summary], left_out: Mapping[Path, str]) -> Fold | None:
    """Return what is to be said against some runs, in the part that the table's readers come to next."""
    rows = [[called(run), remark] for run in summaries for remark in run.remarks]
    rows += [[run.name, f"left out: {reason}"] for run, reason in left_out.items()]
    return Fold(f"Remarks ({len(rows)})", [Table.of(["run", "reason"], rows)], opened=True) if rows else None


def _grid(found: Sequence[Group], metric: MetricInfo, path: Path) -> Figure | None:
    """Draw what came of the settings that tell the runs apart."""
    keys = curve_legends.telling_keys(found)
    tried = []
    for group in found:
        job, ends = settings(group.runs[0].job), [_end(run) for run in group.runs]
        values = [end for end in ends if end is not None]
        words = tuple(curve_legends.value(job.get(key)) for key in keys)
        best = best_run(group.runs)
        tried.append(Tried(words, fmean(values) if values else None, _link(best, path) if best else ""))
    named = [curve_legends.short(key, keys) or key for key in keys]
    return grid(named, tried, metric.name, metric.write, metric.best)


def _panels(found: Sequence[Group], metric: MetricInfo, target: float | None) -> list[Figure | None]:
    """Draw the main metric over each of AXES that a run has."""
    figure = judged_figure([run for group in found for run in group.runs], metric)
    drawn = [(name, each) for name, group in zip(curve_legends.legends(found), found, strict=True)
             if (each := curve(group, figure)) is not None]  # fmt: skip
    drawn.sort(key=lambda one: one[1].mean[-1], reverse=metric.higher_is_better)
    most = len(charts.COLOURS)
    note = f"The {most} best of {len(drawn)}." if len(drawn) > most else ""
    seeds = {len(group.runs) for group in found}
    note += f" Each is the mean of {min(seeds)} seeds." if len(seeds) == 1 < min(seeds) else ""
    panels = []
    for along, which in AXES:
        lines = [_line(name, each, which, nth) for nth, (name, each) in enumerate(drawn[:most])]
        title = f"{metric.name[:1].upper()}{metric.name[1:]} over {along}{'s' if which == 0 else ''}"
        panels.append(charts.lines(title, lines, None, metric.write_briefly, target, note=note, along=along,
                                   wide=which == 0))  # fmt: skip
    return panels


def _line(name: str, each: Curve, which: int, nth: int) -> charts.Line:
    points = [(float(at), float(value)) for at, value in zip(each.at[which], each.mean, strict=True)]
    return charts.Line(name, points, charts.COLOURS[nth])


def _table(summaries: Sequence[Summary], target: float | None, best: Summary | None, path: Path) -> Figure:
    """Return a row for each run: its settings that differ, and all figures."""
    summaries = sorted(summaries, key=_place)
    figures = [run.figures(target) for run in summaries]
    columns = [c for c in columns_of(summaries) if any(each.get(c.figure) is not None for each in figures)]
    keys = curve_legends.telling_keys([Group(str(run.run), [run]) for run in summaries])
    level, rows = level_of(summaries, target), []
    for run, each in zip(summaries, figures, strict=True):
        job, mark = settings(run.job), "best" if run is best else ""
        row = [Cell(called(run), str(run.run), mark, _link(run, path))]
        row += [Cell(curve_legends.value(job.get(key)), str(job.get(key, ""))) for key in keys]
        row.append(Cell(str(run.rounds), run.rounds))
        for column in columns:
            figure = each.get(column.figure)
            row.append(Cell(column.show(figure), "" if figure is None else figure))
        if target is not None:
            rounds = each["rounds_to_target"]
            row.append(Cell(to_target(run, each), "" if rounds is None else rounds))
        rows.append(row)
    named = [curve_legends.short(key, keys) or key for key in keys]
    heads = [*(column.heading for column in columns), *([f"to {level}"] if level else [])]
    found = Table(["run", *named, "rounds", *heads], rows, sort=True)
    return Figure("Every run", "A heading sorts the table by its column.", [found], wide=True)
