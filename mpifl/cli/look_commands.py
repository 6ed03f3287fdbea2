"""The commands that look at runs, such as `watch` and `compare`, and those that make tables of shards."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mpifl.cli import completing, ending
from mpifl.cli.command_options import Measured, Ranks, Run, write_text
from mpifl.common import InputError
from mpifl.common.machine import signals

if TYPE_CHECKING:
    from mpifl.report.terminal import State

Every = Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Between two looks.")]

Panel = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="With --plot: test, pooled, silos, loss; rounds, bytes, ...; test/rounds."
    ),
]
Called = Annotated[
    list[str] | None,
    typer.Option(metavar="SETTING=NAME", help="Call a setting so, as 'lr 0.1=slow', in all that is told."),
]
Judging = Annotated[
    str | None, typer.Option(metavar="NAME", help="Judge by this metric of the runs, not by the main one.")
]
Size = Annotated[str | None, typer.Option(metavar="WxH", help="With --plot: inches, such as 3.5x2.5.")]
Style = Annotated[
    str | None, typer.Option(metavar="NAME", help="With --plot: a style of matplotlib, or its file.")
]


def watch(
    run: Run,
    every: Every = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once, as it is now.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for a run that is yet to begin, or to continue.")
    ] = False,
) -> None:
    """Show a run live, from its folder alone: curves, silos, ranks and the time left.

    The exit code tells the run's end: 0 finished, 3 lost, 75 stopped; 5 with --once if it still goes on.
    """
    from mpifl.report.terminal import watch_run

    _end(watch_run(run, every, once, wait))


def _end(state: State) -> NoReturn:
    """Exit with the code for a run's state."""
    codes = {"FINISHED": 0, "LOST": ending.TOO_FEW, "STOPPED": ending.INTERRUPTED}
    raise typer.Exit(codes.get(state.name, ending.GOING))


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Run folders, or folders of runs.", autocompletion=completing.runs
        ),
    ],
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            "--target-accuracy",
            help="Report rounds, seconds and bytes to it; by default the jobs' own.",
        ),
    ] = None,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page: .html.")] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="SETTING", help="Test all other settings, and the page's silos, against it."),
    ] = None,
    name: Called = None,
    metric: Judging = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw curves: PNG, SVG or PDF.")] = None,
    all_panels: Annotated[
        bool, typer.Option("--all-panels", help="With --plot: the silos' mean and the loss, too.")
    ] = False,
    panel: Panel = None,
    size: Size = None,
    style: Style = None,
    latex: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a row for every setting (booktabs).")
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a line for every run.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all figures.")] = None,
) -> None:
    """Compare runs by main metric, loss, rounds, bytes and seconds.

    Runs that differ only by seed also stand in a second table, as their mean."""
    from mpifl.report.runs import Drawing, Output, compare_runs

    drawing = Drawing(all_panels, panel or (), _inches(size), style)
    output = Output(
        plot, csv, json, page, latex, drawing=drawing, against=against, names=name or (), metric=metric
    )
    compare_runs(runs, target, output)


def _inches(given: str | None) -> tuple[float, float] | None:
    """Read a width and a height."""
    if given is None:
        return None
    found = re.fullmatch(r"(\d{1,2}(?:\.\d+)?)x(\d{1,2}(?:\.\d+)?)", given)
    if not found or min(map(float, found.groups())) < 1:
        raise InputError(
            f"--size {given}: is not a width and height from 1 to 99 inches; write them as 3.5x2.5"
        )
    return float(found[1]), float(found[2])


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; the run may still be running.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; RUN/report.html by default.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep the page fresh until the run ends; it reloads itself.")
    ] = False,
    every: Every = 10.0,
    alone: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A run in which each silo trained by itself.")
    ] = None,
    scores: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Written by evaluate --json: curves of silos.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write ROC, calibration, ... as PDF and SVG, too.")
    ] = None,
) -> None:
    """Write a run's page: one HTML file that opens anywhere."""
    from mpifl.report.pages import keep_report, write_report

    if watch and (scores or plots):
        raise InputError("--scores and --plots: are for a run that has ended; leave --watch out")
    if watch:
        _end(keep_report(run, out, every, alone))
    typer.echo(f"report: {write_report(run, out, alone, scores or (), plots)}")
    if plots is not None:
        typer.echo(f"plots: {plots}")


def coefficients(
    run: Run,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write them with all digits.")] = None,
    latex: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table (booktabs).")] = None,
) -> None:
    """Show a regression's coefficients: estimates, standard errors, tests and intervals."""
    from mpifl.report.terminal import show_coefficients

    show_coefficients(run, csv, latex)


def stats(
    shards: Annotated[
        Path, typer.Argument(metavar="SHARDS|RUN", help="Shards, with --out; else a run that has a table.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The run folder, for HTML, CSV and LaTeX, too.")
    ] = None,
    least: Annotated[int | None, typer.Option(min=1, help="Withhold smaller counts; 5 by default.")] = None,
    masks: Annotated[
        bool, typer.Option("--masks", help="Add up under masks; each site needs MPIFL_SITE.")
    ] = False,
    silos: Annotated[bool, typer.Option("--silos", help="Tell each silo's means, too.")] = False,
    extremes: Annotated[bool, typer.Option("--extremes", help="Tell minimum and maximum.")] = False,
    epsilon: Annotated[
        float | None, typer.Option(help="Add noise: what the table may cost of a row's privacy.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="With --epsilon: delta of (epsilon, delta).")] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=LOWER:UPPER", help="With --epsilon: a column, clipped to these bounds."),
    ] = None,
    category: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="With --epsilon: count the levels of a category.")
    ] = None,
    bins: Annotated[
        int | None,
        typer.Option(min=0, help="With --epsilon: bins of histograms; 10 by default, 0 for none."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue what was stopped in RUN.")] = False,
    ranks: Ranks = None,
) -> None:
    """Tell who is in the data of all silos: counts, means, quartiles, on the ranks that --ranks or mpirun
    starts. With --epsilon counts, means and histograms have noise that hides each row."""
    from mpifl.cli.job_tools import keys_of_noised, privacy_of
    from mpifl.report.terminal import show_stats

    keys, privacy = {"least": least, "extremes": extremes, "by_silo": silos}, {}
    if epsilon is not None:
        keys |= keys_of_noised(bounds or (), category or (), bins)
        privacy = privacy_of(epsilon, delta)
    elif bounds or category or bins is not None or delta is not None:
        what = "not given; --bounds, --category, --bins and --delta are of a table with noise"
        raise InputError(f"--epsilon: {what}, as --epsilon 1 --delta 1e-5")
    named = "dptable" if privacy else "tableone"
    _made(named, show_stats, shards, out, keys, privacy=privacy, masks=masks, resume=resume, ranks=ranks)


def survival(
    shards: Annotated[
        Path, typer.Argument(metavar="SHARDS|RUN", help="Shards, with --out; else a run that has curves.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The run folder, for HTML, CSV and LaTeX, too.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A curve for each level, and the log-rank test.")
    ] = None,
    silos: Annotated[bool, typer.Option("--silos", help="A curve for each silo, and the test.")] = False,
    step: Annotated[
        float | None, typer.Option(min=1e-9, help="Round times up to multiples of this, as 30 of days.")
    ] = None,
    least: Annotated[int | None, typer.Option(min=1, help="Join times of fewer rows; 5 by default.")] = None,
    masks: Annotated[
        bool, typer.Option("--masks", help="Add up under masks; each site needs MPIFL_SITE.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue what was stopped in RUN.")] = False,
    ranks: Ranks = None,
) -> None:
    """Tell survival curves of all silos' rows and the log-rank test, on the ranks that --ranks or mpirun
    starts."""
    from mpifl.report.terminal import show_survival

    keys = {"least": least, "by": by, "by_silo": silos, "step": step}
    _made("kaplanmeier", show_survival, shards, out, keys, masks=masks, resume=resume, ranks=ranks)


def _made(
    algorithm: str,
    show: Callable[[Path], None],
    shards: Path,
    out: Path | None,
    keys: Mapping[str, Any],
    *,
    masks: bool,
    resume: bool,
    ranks: int | None,
    privacy: Mapping[str, Any] | None = None,
) -> None:
    """Make a table of shards in a run folder, and show it; without a folder, show that of a run."""
    keys = {key: value for key, value in keys.items() if value or key == "bins"}
    if out is None:
        if keys or privacy or masks or resume or ranks:
            raise InputError("--out: not given; a table is made of shards with --out RUN, and shown of a run")
        return show(shards)
    from mpifl.wire.launching import launcher

    signals.install()
    tables = keys, {**(privacy or {})}
    if ranks is not None and ranks > 1 and not launcher.launched():
        if (shards / "federation.json").exists():  # else they may lie on the ranks' machines only
            from mpifl.cli.job_tools import check_table, job_of_table

            check_table(job_of_table(algorithm, shards, masks, *tables))
        raise typer.Exit(ending.code_of_launched(lambda: launcher.launch(ranks), out))
    from mpifl.cli.job_tools import check_ended, job_of_table, joined, trained

    transport = joined(ranks, survive=False)
    from mpifl.training import agree

    told = agree(transport, lambda: {"job": json.dumps(job_of_table(algorithm, shards, masks, *tables))})
    end = trained(transport, json.loads(told["job"]), out, (), resume=resume)
    if transport.is_server:
        check_ended(end, "the same command with --resume")
        show(out)


def bill(
    run: Run,
    profile: Measured = None,
    out: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures.")] = None,
) -> None:
    """Hold what a run has moved and taken against its plan: bytes, seconds, memory."""
    from mpifl.cli.plan import bill_of, show_bill

    lines, notes = bill_of(run, profile)
    show_bill(run, lines, notes)
    if out is not None:
        told = {"lines": [one._asdict() for one in lines], "notes": notes}
        write_text("--json", out, json.dumps(told, indent=2) + "\n")
