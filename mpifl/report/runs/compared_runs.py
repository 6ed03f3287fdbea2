"""Runs side by side: as a table, and as files for other programs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from mpifl.common import InputError, one_line, written_after
from mpifl.report.observers import HELD_OUT, on_terminal, wide_console
from mpifl.report.runs.chance import NO_BETTER, below_commonest
from mpifl.report.runs.compared_columns import (
    COSTS,
    NARROW,
    TO_TARGET,
    ComparedColumn,
    columns_of,
    judged_as,
    level_of,
    metrics_of,
    unequal_clocks,
    whose,
)
from mpifl.report.runs.compared_files import NOTHING, LeftOut, Output, check_outputs, write_outputs
from mpifl.report.runs.curve_legends import legends, with_names, without_seeds
from mpifl.report.runs.next_commands import show_next
from mpifl.report.runs.paired_settings import named, table_against, table_of_settings, words_against
from mpifl.report.runs.run_summary import Summary, read_run
from mpifl.report.runs.seeds import (
    Group,
    groups,
    on_other_ground,
    table_of_differences,
    unfinished,
    unfinished_told,
    varying,
)
from mpifl.report.runs.standings import Standing, corrected, ranked_by, standings_of, verdict
from mpifl.report.runs.units import speed
from mpifl.run.folder import read_metrics, round_of
from mpifl.run.job import read_kept

DEEPEST = 3
"""Folders between one that is given and its runs."""
Build = Callable[[Sequence[ComparedColumn]], Table]
"""Makes a table of these columns."""


def show_run(run: Path) -> None:
    """Print what a finished run came to, as far as it has metrics, where its model lies, and what is next."""
    console, model, job = wide_console(), run / "model.safetensors", read_kept(run / "job.toml")
    if job.tracking.jsonl and read_metrics(run):
        summaries = [read_run(run)]
        _print(console, summaries, lambda columns: table(summaries, summaries[0].target, columns))
        console.print(whose(summaries), soft_wrap=True)
        doubted = [one for one in summaries[0].remarks if one.startswith(NO_BETTER)]
        for remark in filter(None, (*doubted, below_commonest(summaries[0]))):
            console.print(remark, soft_wrap=True)
        if told := speed(summaries[0].records):
            console.print(f"training: {told}", soft_wrap=True)
    elif not written_after(model, run / "job.toml"):
        console.print(f"{run}: no round was run", soft_wrap=True)
        return
    kept = round_of(model)
    which = f", of round {kept:,}, the best; {run / 'last.safetensors'} is of the last" if kept else ""
    console.print(f"model: {model}{which}", soft_wrap=True)
    if on_terminal():  # a log has no next
        show_next(console, run)


def compare_runs(
    runs: Sequence[Path], target: float | None = None, output: Output = NOTHING, search: bool = False
) -> None:
    """Print runs side by side, and means over their seeds; write files and draw curves where asked.

    Args:
        runs: Run folders, or folders of runs as of a sweep; one that cannot be read is named and left out.
        target: A value of the main metric; by default the one that all jobs wait for.
        output: Files to write.
        search: Rank settings by the rows that rounds are scored on, as a search does; else by test rows.

    Raises:
        InputError: no run can be read, the target is no value of the metric, or a file cannot be written.
    """
    check_outputs(output)
    summaries, left_out = read_runs([run for folder in runs for run in runs_in(folder)], search)
    main = {one.name for one in metrics_of(summaries)}  # which the jobs' target is of
    jobs_target = common_target(summaries) if output.metric is None or main == {output.metric} else None
    summaries = judged_as(summaries, output.metric)
    if target is not None and not math.isfinite(target):
        raise InputError(f"--target {target:g}: is not a value of a metric")
    if target is not None and all(one.share for one in metrics_of(summaries)) and not 0 < target <= 1:
        raise InputError(f"--target-accuracy {target:g}: is a share above 0 and up to 1; 0.97 is 97%")
    if not summaries:
        raise InputError("; ".join(left_out.values()))
    summaries = with_names(summaries, output.names)
    console = wide_console()
    target = jobs_target if target is None else target
    found = _tables(console, summaries, target, output.against)
    said = [
        *verdict(found),
        *corrected(found),
        *unfinished_told(summaries),
        *(ranked_by(found) if len(found) > 1 else []),
        f"Figures: {whose(summaries)}.",
        *unequal_clocks(summaries, target),
        *_remarks(summaries),
    ]
    for line in [*said, *(f"left out: {reason}" for reason in left_out.values())]:
        console.print(line, soft_wrap=True)
    many = len(summaries)
    title = f"Comparison of {many:,} run{'s' * (many > 1)}"
    write_outputs(summaries, left_out, target, output, title, console)


def _remarks(summaries: Sequence[Summary]) -> list[str]:
    """Return what is to be said against each run, but of those that a line names as unfinished that."""
    told = [(one.run, remark) for one in summaries for remark in (one.stopped, *one.remarks) if remark]
    left = bool(unfinished(summaries))
    return [f"{run}: {remark}" for run, remark in told if not (left and remark.startswith("unfinished"))]


def _tables(
    console: Console, summaries: Sequence[Summary], target: float | None, against: str | None
) -> list[Standing]:
    """Print the tables of runs, of seeds, of settings and of tests; return the settings."""
    every = groups(summaries)
    named_alike = [
        replace(group, name=without_seeds(name, group))
        for name, group in zip(legends(every), every, strict=True)
    ]
    together = [group for group in named_alike if len(group.runs) > 1]
    _print(console, summaries, lambda columns: table(summaries, target, columns))
    if together:
        _print(console, summaries, lambda columns: table_over_seeds(together, target, columns))
    if keys := varying(summaries):
        console.print(table_of_differences(summaries, keys))
    found = standings_of(summaries)
    if tested := table_of_settings(found):
        console.print(tested)
    reference = None if against is None else named(found, against)
    if reference is not None:
        console.print(table_against(found, reference))
        console.print(words_against(found, reference), soft_wrap=True)
    return found


def runs_in(folder: Path) -> list[Path]:
    """Return the runs in a folder that is none itself, and in folders in it; else the folder."""
    if _may_be_run(folder, "job.toml", "metrics.jsonl"):
        return [folder]
    return [*_below(folder, DEEPEST)] or [folder]


def _below(folder: Path, deep: int) -> Iterator[Path]:
    """Yield the runs in a folder, and in those in it that are none, such as sweeps."""
    for path in sorted(folder.glob("*")):
        if _may_be_run(path, "job.toml"):
            yield path
        elif deep and not path.name.startswith(".") and path.is_dir() and not path.is_symlink():
            yield from _below(path, deep - 1)


def _may_be_run(folder: Path, *signs: str) -> bool:
    """Whether a folder holds such a file, or may not be entered, which is then said of it."""
    with suppress(OSError):
        return any((folder / sign).exists() for sign in signs)
    return True


def read_runs(runs: Sequence[Path], search: bool = False) -> tuple[list[Summary], LeftOut]:
    """Read run folders; return those that can be read, and why the others cannot.

    Args:
        search: Whether they are of one search.
    """
    summaries: list[Summary] = []
    left_out: dict[Path, str] = {}
    for run in dict.fromkeys(runs):
        try:
            summaries.append(replace(read_run(run), search=search))
        except InputError as error:
            left_out[run] = one_line(error)
    return on_other_ground(_without_the_usual(summaries)), left_out


def briefly(run: Path, reason: str) -> str:
    """Return the first part of why a run cannot be read; the remarks have all of it."""
    parts = re.split("[:;] ", reason.removeprefix(str(run)))
    return parts[1] if reason.startswith(str(run)) and len(parts) > 1 else "cannot be read"


def _without_the_usual(summaries: Sequence[Summary]) -> list[Summary]:
    """Return the runs; where the server has no test set in any, that is usual and no remark."""
    if any(run.metric.test in record for run in summaries for record in (*run.records, run.at_end)):
        return [*summaries]
    return [
        replace(run, remarks=tuple(one for one in run.remarks if one != run.without_test))
        if run.judged_by else run
        for run in summaries
    ]  # fmt: skip


def common_target(summaries: Sequence[Summary]) -> float | None:
    """Return the value of the main metric that all the runs' jobs wait for, if it is one."""
    targets = {(summary.metric, summary.target) for summary in summaries}
    return targets.pop()[1] if len(targets) == 1 else None


def _print(console: Console, summaries: Sequence[Summary], build: Build) -> None:
    """Print a table; where the terminal is too narrow, without the columns that matter least."""
    left, unlimited = columns_of(summaries), console.options.update(max_width=1000)
    for name in (name.format(metric.name) for name in NARROW for metric in metrics_of(summaries)):
        if Measurement.get(console, unlimited, build(left)).maximum <= console.width:
            break
        left = [column for column in left if column.figure != name]
    console.print(build(left))


def table(summaries: Sequence[Summary], target: float | None, offered: Sequence[ComparedColumn]) -> Table:
    """Return a table with a row for every run; columns for which no run has a figure are left out."""
    figures = [summary.figures(target) for summary in summaries]
    columns = [column for column in offered if any(each.get(column.figure) is not None for each in figures)]
    found = _headed(["run", "rounds"], columns, level_of(summaries, target))
    for summary, each in zip(summaries, figures, strict=True):
        cells = [_cell(summary, column, each.get(column.figure), target) for column in columns]
        last = [] if target is None else [to_target(summary, each)]
        found.add_row(str(summary.run), _rounds(summary), *cells, *last)
    return found


def _cell(summary: Summary, column: ComparedColumn, value: float | None, target: float | None) -> str:
    """Write a figure; the worst silo's with the name of that silo, if it has one."""
    metric = summary.metric
    judged = column.figure in (*metric.judged_by, f"best_{metric.name}")
    if judged and target is not None and value is not None:
        return metric.write(value, target)
    name = summary.worst_silo if column.figure == f"{metric.silo}_worst" else None
    return column.show(value) + (f" silo {name}" if name else "")


def table_over_seeds(
    together: Sequence[Group], target: float | None, offered: Sequence[ComparedColumn]
) -> Table:
    """Return a table with a row for each group of runs: mean and standard deviation over the seeds."""
    spreads = [group.spread(target) for group in together]
    offered = [column for column in offered if column not in COSTS]
    columns = [column for column in offered if any(each.get(column.figure) is not None for each in spreads)]
    level = level_of([run for group in together for run in group.runs], target)
    found = _headed(["mean ± deviation over seeds", "seeds"], columns, level)
    for group, each in zip(together, spreads, strict=True):
        cells = [column.show_spread(each.get(column.figure)) for column in columns]
        last = [] if target is None else [_group_to_target(group, each, target)]
        found.add_row(group.name, str(len(group.runs)), *cells, *last)
    return found


def _headed(first: Sequence[str], columns: Sequence[ComparedColumn], level: str | None) -> Table:
    found = Table()
    found.add_column(first[0], overflow="fold")
    for heading in [*first[1:], *(column.heading for column in columns)]:
        found.add_column(heading, justify="right", no_wrap=True, overflow="fold")
    if level is not None:
        found.add_column(f"to {level}", justify="right")
    return found


def _rounds(summary: Summary) -> str:
    planned = summary.job.get("rounds", summary.rounds)
    cut = planned > summary.rounds and (summary.stopped or not summary.finished)
    return f"{summary.rounds} of {planned}" if cut else str(summary.rounds)


def to_target(summary: Summary, figures: dict[str, float | None]) -> str:
    """Write what a run's way to a target took, by its figures; or that it was not reached."""
    if summary.judged_by is None or summary.missing:
        return "-"
    held_out = f", on {HELD_OUT}" if summary.judged_by != summary.metric.test else ""
    if figures["rounds_to_target"] is None:
        return f"not reached in {summary.rounds} round{'s' * (summary.rounds > 1)}{held_out}"
    told = [column for column in TO_TARGET if column.figure in figures]
    return ", ".join(column.show(figures[column.figure]) for column in told) + held_out


def _group_to_target(group: Group, spread: dict[str, tuple[float, float] | None], target: float) -> str:
    if any(run.missing for run in group.runs):
        return "-"
    if spread["rounds_to_target"] is None:
        return f"reached by {sum(run.reached(target) is not None for run in group.runs)} of {len(group.runs)}"
    told = [column for column in TO_TARGET if column.figure in spread]
    return ", ".join(column.show_spread(spread[column.figure]) for column in told)
