"""Runs side by side as files: CSV, JSON, LaTeX, page and picture, all checked before the first is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from mpifl.common import InputError, check_named, write_named
from mpifl.common.pages import check_page, write_page
from mpifl.report.runs.compared_columns import metrics_of
from mpifl.report.runs.paired_settings import (
    COLUMNS,
    PAIRED,
    as_columns,
    held_to,
    levels_told,
    named,
    of_runs,
    of_settings,
    pairs,
    paper_columns,
    words_against,
)
from mpifl.report.runs.run_summary import Summary
from mpifl.report.runs.seeds import Group, groups, settings, unfinished_told, varying
from mpifl.report.runs.standings import Standing, corrected, crowned, ranked_by, standings_of, verdict
from mpifl.report.runs.units import booktabs, csv_table, escaped, latex_spread, rounds_told, sizes

LeftOut = Mapping[Path, str]
"""Why runs cannot be read."""


def as_rows(
    summaries: Sequence[Summary], target: float | None, always: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return of every run its state, settings in which the runs differ, its figures, and its setting's.

    All have the same keys, and None is what there is not.

    Args:
        target: A value of the main metric.
        always: Settings that are told even where the runs do not differ in them.
    """
    keys, setting = list(dict.fromkeys([*always, *varying(summaries)])), of_runs(summaries)
    standings = standings_of(summaries)
    judged = standings[0].judged if standings else None
    names = list(dict.fromkeys(name for summary in summaries for name in summary.figures(target)))
    found = []
    for summary in summaries:
        job, figures = settings(summary.job), summary.figures(target)
        state = {"run": summary.run, "finished": summary.finished, "stopped": summary.stopped}
        state["remarks"] = "; ".join(summary.remarks)
        state |= {"worst_silo": summary.worst_silo, "silo_rows": summary.silo_rows or None}
        state |= {"judged": judged and judged.value(summary), "judged_by": judged and judged.words()}
        standing = setting.get(summary.run) or [None] * len(COLUMNS)
        row = {**state, **{key: job.get(key) for key in keys}, **{name: figures.get(name) for name in names}}
        found.append({**row, **dict(zip(COLUMNS, standing, strict=True))})
    return found


def as_csv(summaries: Sequence[Summary], target: float | None, against: str | None = None) -> str:
    """Return `as_rows` as a table with a line for every run, figures in full, and with a reference the test
    of each run's setting against it."""
    rows = as_rows(summaries, target)
    if against is not None:
        columns = as_columns(standings_of(summaries), against)
        rows = [{**row, **columns[row["setting"]]} for row in rows]
    return csv_table(list(rows[0]), rows)


def as_json(
    summaries: Sequence[Summary], left_out: LeftOut, target: float | None, against: str | None = None
) -> str:
    """Return the runs, the means over seeds, the tests and what was left out, as one JSON object."""
    keys, standings = varying(summaries), standings_of(summaries)
    found: dict[str, Any] = {
        "_".join(["target", *(metric.name for metric in metrics_of(summaries))]): target,
        "runs": [_run_as_json(summary, keys, target) for summary in summaries],
        "settings": of_settings(standings),
        "pairs": pairs(standings),
        "against": against and {"name": against, "settings": held_to(standings, named(standings, against))},
        "over_seeds": [_group_as_json(group, target) for group in groups(summaries) if len(group.runs) > 1],
        "left_out": [{"run": str(run), "reason": reason} for run, reason in left_out.items()],
    }
    return json.dumps(found, indent=1, default=str, allow_nan=False) + "\n"


def _run_as_json(summary: Summary, keys: Sequence[str], target: float | None) -> dict[str, Any]:
    return {
        "run": str(summary.run),
        "finished": summary.finished,
        "stopped": summary.stopped,
        "remarks": list(summary.remarks),
        "settings": _plain({key: value for key, value in settings(summary.job).items() if key in keys}),
        **summary.figures(target),
        "worst_silo": summary.worst_silo,
        "silo_rows": summary.silo_rows or None,
    }


def _plain(value: Any) -> Any:
    """Return what JSON has words for: times and numbers that are not finite become text."""
    return json.loads(json.dumps(value, default=str), parse_constant=str)


def _group_as_json(group: Group, target: float | None) -> dict[str, Any]:
    spread = group.spread(target)
    return {
        "name": group.name,
        "runs": [str(run.run) for run in group.runs],
        "seeds": _plain([run.job["seed"] for run in group.runs]),
        "mean": {name: each[0] for name, each in spread.items() if each},
        "std": {name: each[1] for name, each in spread.items() if each},
    }


def as_latex(summaries: Sequence[Summary], target: float | None, against: str | None = None) -> str:
    """Return a table of the settings, the best first: mean ± sample deviation over seeds.

    The best is bold only where it is ahead of every other setting by more than chance makes.

    Raises:
        InputError: the runs are judged by several metrics, or were never scored.
    """
    if not (found := standings_of(summaries)):
        raise InputError("--latex: the runs have no main metric in common by which settings could be ranked")
    metric, won = found[0].metric, crowned(found)
    traffic = ("bytes_sent", "bytes_received")
    columns = (
        [("seeds", [str(len(one.ends)) for one in found])] if any(one.deviation for one in found) else []
    )
    unit = r" (\%)" if metric.share else ""
    main = [latex_spread(one.ends, metric, won and one is found[0]) for one in found]
    columns.append((escaped(metric.name) + unit, main))
    worst = [latex_spread(one.of_silos("worst"), metric) for one in found]
    columns.append((found[0].worst_head + unit, worst))
    if target is not None:
        level = escaped(metric.write_briefly(target))
        columns.append((f"rounds to {level}", [_reached(one, target) for one in found]))
    sent = [one.sums(target, *traffic) for one in found]
    unit, cells = sizes([fmean(each) if each else None for each in sent])
    columns.append((f"sent + received ({unit})", cells))
    columns = [column for column in columns if {*column[1]} != {"--"}]
    reference = named(found, against) if against else found[0]
    columns += paper_columns(found, reference, escaped(reference.name))
    heads = ["setting", *(head for head, _ in columns)]
    rows = [[escaped(one.name), *(cells[nth] for _, cells in columns)] for nth, one in enumerate(found)]
    said = " ".join(verdict(found)) or f"{found[0].name}: {found[0].written()}."
    held = [words_against(found, reference)] if against else corrected(found)
    held += levels_told(found, reference)
    return booktabs(heads, rows, [said, *unfinished_told(summaries), *held, *ranked_by(found)])


def _reached(one: Standing, target: float) -> str:
    """Return after how many rounds the runs of a setting were at a target, or how many of them were."""
    each = [run.figures(target)["rounds_to_target"] for run in one.group.runs]
    found = [rounds for rounds in each if rounds is not None]
    return rounds_told(found) if len(found) == len(each) or not found else f"{len(found)} of {len(each)}"


@dataclass(frozen=True)
class Drawing:
    """What is drawn of a comparison by matplotlib, and how.

    Attributes:
        all_panels: Whether also the silos' mean and the loss are drawn.
        panels: Which panels are: `test`, `silos`, `loss`; `rounds`, `bytes`, `seconds`, `virtual`; or one of
            both as `test/rounds`.
        size: Width and height in inches.
        style: The name of a style of matplotlib, or its file.
    """

    all_panels: bool = False
    panels: Sequence[str] = ()
    size: tuple[float, float] | None = None
    style: str | None = None


@dataclass(frozen=True)
class Output:
    """Where a comparison goes besides the terminal."""

    plot: Path | None = None
    csv: Path | None = None
    json: Path | None = None
    page: Path | None = None
    latex: Path | None = None
    drawing: Drawing = Drawing()
    """How curves are drawn."""
    against: str | None = None
    """The setting that the others are tested against, and on the page silos' figures, too."""
    names: Sequence[str] = ()
    """What settings are called, each as `SETTING=NAME`."""
    metric: str | None = None
    """By which metric of their rounds runs are judged; by default the main one."""

    @property
    def pairs(self) -> Path | None:
        """The second file of --csv, with all pairs of settings."""
        return self.csv and self.csv.with_name(f"{self.csv.stem}-pairs{self.csv.suffix}")

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield the option and the path of each file."""
        for option in ("csv", "json", "latex", "page", "plot"):
            if (path := getattr(self, option)) is not None:
                yield f"--{option}", path
        if self.pairs is not None:
            yield "--csv", self.pairs


NOTHING: Output = Output()


def check_outputs(output: Output) -> None:
    """See that files may be written as they are named, and that no option lacks the file that it is for.

    Raises:
        InputError: one may not, two are the same, or an option is for nothing.
    """
    if output.page is not None:
        check_page("--page", output.page)
    if output.plot is not None:
        from mpifl.report.pictures import check_picture

        check_picture(output.plot, output.drawing.panels)
    elif output.drawing != Drawing():
        raise InputError("--panel, --all-panels, --size and --style: are for --plot FILE; give that, too")
    check_named(output.files())


def write_outputs(
    summaries: list[Summary],
    left_out: LeftOut,
    target: float | None,
    output: Output,
    title: str,
    console: Console,
) -> None:
    """Write the files; the curves first, since what is wrong with panels and styles shows only there.

    Raises:
        InputError: there is no such setting, panel or style, or a file cannot be written.
    """
    contents, page = dict[str, str](), ""
    if output.csv is not None:
        contents["csv"] = as_csv(summaries, target, output.against)
        contents["pairs"] = csv_table(PAIRED, pairs(standings_of(summaries)))
    if output.json is not None:
        contents["json"] = as_json(summaries, left_out, target, output.against)
    if output.latex is not None:
        contents["latex"] = as_latex(summaries, target, output.against)
    if output.page is not None:
        from mpifl.report.pages import compare_page

        page = compare_page(summaries, left_out, target, output.page, title, output.against)
    if output.plot is not None:
        from mpifl.report.pictures import draw

        draw(groups(summaries), output.plot, target, output.drawing)
    for option, content in contents.items():
        path = getattr(output, option)
        write_named("--csv" if option == "pairs" else f"--{option}", path, content)
        told = "csv, all pairs of settings" if option == "pairs" else option
        console.print(f"{told}: {path}", soft_wrap=True)
    if output.page is not None:
        write_page("--page", output.page, page)
        console.print(f"page: {output.page}", soft_wrap=True)
    if output.plot is not None:
        console.print(f"curves: {output.plot}", soft_wrap=True)
