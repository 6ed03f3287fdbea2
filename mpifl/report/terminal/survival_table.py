"""Survival curves, in the terminal and as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpifl.common import InputError, one_line
from mpifl.common.pages import Block, Figure
from mpifl.report.pages import figures_of_stats, figures_of_survival, page_of_survival
from mpifl.report.runs import units
from mpifl.report.terminal.noised_table import READ, figures_of_noised
from mpifl.report.terminal.printed_table import print_table, told_last, write_table
from mpifl.report.terminal.stats_table import (
    WITHHELD,
    heads_of,
    rows_of as rows_of_stats,
    said_of as said_of_stats,
)

FILE = "survival"
COLUMNS = ("group", "from", "time", "at_risk", "events", "censored", "survival", "low", "high")
HEADS = ("", "rows", "events", "median", "95 %: low", "high", "last time", "survival", "95 %: low", "high")
NOT_REACHED = "–"
JOINED = (
    "Survival and its interval are exact where joined times end, and are not told within them. "
    "A median lies in its span. The exact interval of a median lies within the one given."
)
Told = Mapping[str, Any]


def show_survival(run: Path) -> None:
    """Print the curves of a run, and write them into the run folder as HTML, CSV and LaTeX.

    Raises:
        InputError: the run has none, or a file cannot be written.
    """
    if (told := told_last(run, "survival")) is None:
        raise InputError(f"{run}: has no survival curves; name a run of them, or shards with --out RUN")
    rows, said = [*rows_of(told)], said_of(told)
    page, latex = page_of_survival(told, HEADS, rows, said), units.as_latex(HEADS, rows, said)
    files = {"html": page, "csv": as_csv(told), "tex": latex}
    write_table(print_table(HEADS, rows, said), "curves", run / FILE, files)


def analysed(records: Sequence[Told]) -> list[Block]:
    """Return what a run's page has of a table of the rows or of curves; nothing of another run."""
    found, said = list[Block](), list[str]()
    for record in records[-1:]:
        if (table := record.get("table")) is not None:
            found += figures_of_stats(table, heads_of(table), [*rows_of_stats(table)])
            said += said_of_stats(table)
        if (noised := record.get("noised")) is not None:
            found += figures_of_noised(noised)
            said += READ
        if (curves := record.get("survival")) is not None:
            found += figures_of_survival(curves, HEADS, [*rows_of(curves)])
            said += said_of(curves)
    return [*found, *([Figure("How to read it", " ".join(said), wide=True)] if said else [])]


def rows_of(told: Told) -> Iterator[list[str]]:
    """Yield a row for each group: its name, and a text for each head behind it."""
    for one in told["groups"]:
        name = one_line(one["name"])
        if one["withheld"]:
            yield [name, WITHHELD, *[""] * (len(HEADS) - 2)]
            continue
        last = one["curve"][-1]
        joined = f"{_time(one['median_from'])} to " * (one["median_from"] != one["median"])
        medians = [joined + _time(one["median"]), *(_time(one[key]) for key in ("median_low", "median_high"))]
        end = [_time(last["time"]), *(_share(last[key]) for key in ("survival", "low", "high"))]
        yield [name, f"{one['rows']:,}", f"{one['events']:,}", *medians, *end]


def said_of(told: Told) -> list[str]:
    """Return lines that have the test, and what was joined."""
    found = list[str]()
    if test := told.get("log_rank"):
        p = f"{test['p']:.4f}" if test["p"] >= 1e-4 else f"{test['p']:.1e}"
        degrees = f"degrees of freedom: {test['degrees']}"
        found.append(f"Log-rank test: chi-squared {test['statistic']:.3f}, {degrees}, p = {p}.")
    if told["least"] > 1:
        least = told["least"]
        found.append(
            f"Times are joined into spans. Each has {least} events or more, and {least} censored rows or "
            "more, or none. A group that has fewer is withheld, and the test with it."
        )
        found.append(JOINED)
    else:
        found.append("With --least 1 every time of an event is told, also that of a single row.")
    return [*found, f"A time between two multiples of {told['step']:g} is rounded up."]


def as_csv(told: Told) -> str:
    """Return all figures with all digits: a line for each group and time."""
    rows = [
        {"group": one["name"], **row}
        for one in told["groups"]
        for row in ([{"survival": WITHHELD}] if one["withheld"] else one["curve"])
    ]
    return units.csv_table(COLUMNS, rows)


def _time(time: float | None) -> str:
    return NOT_REACHED if time is None else f"{time:,.7g}"


def _share(share: float | None) -> str:
    return NOT_REACHED if share is None else f"{share:.3f}"
