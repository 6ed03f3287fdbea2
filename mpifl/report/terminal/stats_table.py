"""The table of who is in the data, in the terminal and as files."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpifl.common import InputError, one_line
from mpifl.report.pages import page_of_stats
from mpifl.report.results import written
from mpifl.report.runs import units
from mpifl.report.terminal.noised_table import show_noised
from mpifl.report.terminal.printed_table import print_table, record_last, told_last, write_table

WITHHELD, FILE = "withheld", "tableone"
DIGITS, MOST_DECIMALS = 3, 9
OTHERS = "others"
"""What stands for the numbers that are not told one by one."""
MOST_NAMED = 8
"""Variables in a line."""
MOST_SILOS = 6
"""Silos in the terminal; the files have more."""
COLUMNS = (
    *("variable", "level", "silo", "count", "share", "missing", "mean", "deviation"),
    *("q1", "median", "q3", "minimum", "maximum", "smd", "between", "withheld", "since"),
)
APART = ["SMD", "between silos"]
Told = Mapping[str, Any]


def show_stats(run: Path) -> None:
    """Print the table of a run, and write it into the run folder as HTML (but a noised one), CSV and LaTeX.

    Raises:
        InputError: the run has no such table, or a file cannot be written.
    """
    if noised := record_last(run, "noised"):
        return show_noised(run, noised)
    if (told := told_last(run, "table")) is None:
        what = "has no table of who is in the data; name a run of it, or make one of shards with --out RUN"
        raise InputError(f"{run}: {what}")
    heads, rows, said = heads_of(told), [*rows_of(told)], said_of(told)
    places = [nth for nth in range(len(heads)) if nth < 2 + MOST_SILOS or nth >= len(heads) - len(APART)]
    console = print_table(
        [heads[nth] for nth in places], [[row[nth] for nth in places] for row in rows], said
    )
    latex = units.as_latex(heads, rows, said)
    files = {"html": page_of_stats(told, heads, rows, said), "csv": as_csv(told), "tex": latex}
    write_table(console, "table", run / FILE, files)


def said_of(told: Told) -> list[str]:
    """Return lines that say what is withheld, in which figures filled gaps are, and what columns mean."""
    few = f"Counts from 1 to {told['least'] - 1} are withheld, and what would tell them by subtraction. "
    few += "Counts of histograms are rounded."
    parted = "SMD: the largest standardised difference of two silos' means. Between silos: the share of the "
    numbers = [one for one in told["variables"] if one["kind"] == "numbers"]
    gaps = [one_line(one["name"]) for one in numbers if one.get("missing", 0) != 0]
    more = f" and {len(gaps) - MOST_NAMED:,} more" if len(gaps) > MOST_NAMED else ""
    filled = "Mean, SD and quartiles take in the values that filled gaps: of "
    said = (
        _said_of_rows(told)
        + [few] * (told["least"] > 1)
        + [f"{filled}{', '.join(gaps[:MOST_NAMED])}{more}."] * bool(gaps)
    )
    return said + [f"{parted}variance between silos."] * ("silos" in told)


def _said_of_rows(told: Told) -> list[str]:
    """Say whose rows the table counts, and how many were left out before."""
    said, rows = list[str](), told["rows"]
    if (groups := told.get("groups")) is not None:
        said.append(f"The {rows:,} rows are of {groups:,} groups, such as patients. Figures count rows.")
    if "left_out" in told:
        many = "Some" if told["left_out"] is None else f"{told['left_out']:,}"
        said.append(f"{many} further rows were left out before, since they lack values.")
    return said


def heads_of(told: Told) -> list[str]:
    """Return the heads of the table: all rows, and the silos if they are told."""
    silos = zip(told.get("silos", ()), told.get("silo_rows", ()), strict=True)
    named = [f"{one_line(name)} ({rows:,})" for name, rows in silos]
    return ["", f"all ({told['rows']:,})", *named, *(APART if named else [])]


def rows_of(told: Told) -> Iterator[list[str]]:
    """Yield the rows of the table: the name, and a text for each head behind it."""
    wide = len(heads_of(told)) - 2
    for one in told["variables"]:
        for name, cell, of in _lines(one):
            yield [name, cell, *(_silos(of, one) or [""] * wide)]


def _lines(one: Told) -> Iterator[tuple[str, str, Told]]:
    """Yield the name and the text of each line of a variable, and what silos tell of it."""
    name = one_line(one["name"])
    if one["kind"] == "numbers":
        yield (f"{name}, mean (SD)", _mean(one, one), one) if "mean" in one else (name, WITHHELD, {})
    else:
        yield f"{name}, n (%)", "" if one["levels"] else WITHHELD, one
        yield from ((f"  {_level(of['level'], one)}", _counted(of), of) for of in one["levels"])
    if "quartiles" in one:
        low, median, high = _written(one, one["quartiles"][2] - one["quartiles"][0], one["quartiles"])
        yield "  median [quartiles]", f"{median} [{low}, {high}]", {}
    if "minimum" in one:
        ends = one["minimum"], one["maximum"]
        yield "  minimum, maximum", ", ".join(_written(one, one["deviation"], ends)), {}
    if "missing" in one:
        yield "  gaps that were filled", WITHHELD if one["missing"] is None else f"{one['missing']:,}", {}


def _silos(of: Told, variable: Told) -> list[str]:
    """Return what silos tell of a variable or a level, and how far they part; nothing where they do not."""
    if "silos" not in of:
        return []
    means = [_share(silo["mean"]) if "level" in of else _mean(silo, variable) for silo in of["silos"]]
    smd = f"{of['smd']:.2f}" if "smd" in of else ""
    return [*means, smd, _share(of["between"]) if "between" in of else ""]


def _mean(of: Told, variable: Told) -> str:
    """Write a mean and a deviation of a variable, that of dates in days."""
    mean, deviation = _told_to(of["deviation"], (of["mean"], of["deviation"]))
    if since := variable.get("since"):
        return f"{written(of['mean'], since)} ({deviation} days)"
    return f"{mean} ({deviation})"


def _written(variable: Told, spread: float, numbers: Sequence[float]) -> list[str]:
    """Write numbers of a variable by their spread, dates as such."""
    since = variable.get("since")
    return [written(one, since) for one in numbers] if since else _told_to(spread, numbers)


def _level(level: str, variable: Told) -> str:
    """Write what few different numbers, or dates, are told of."""
    since = variable.get("since")
    return written(float(level), since) if since and level != OTHERS else one_line(level)


def _counted(level: Told) -> str:
    return WITHHELD if level["count"] is None else f"{level['count']:,} ({_share(level['share'])})"


def _share(share: float) -> str:
    return f"{100 * share:.1f}%"


def _told_to(spread: float, numbers: Sequence[float]) -> list[str]:
    """Write numbers with as many decimals as give 3 digits of their spread."""
    if not spread:
        return [f"{number:,.4g}" for number in numbers]
    decimals = min(max(DIGITS - 1 - math.floor(math.log10(spread)), 0), MOST_DECIMALS)
    return [f"{round(number, decimals) + 0.0:,.{decimals}f}" for number in numbers]  # no -0


def as_csv(told: Told) -> str:
    """Return all figures with all digits: a line for each variable, level, bin, and silo of these."""
    rows = [
        {"variable": one["name"], **{key: WITHHELD if of is None else _plain(of) for key, of in row.items()}}
        for one in told["variables"]
        for row in _csv_rows(one, told.get("silos", ()))
    ]
    return units.csv_table(COLUMNS, rows)


def _plain(of: object) -> object:
    return str(of) if isinstance(of, bool) else of


def _csv_rows(one: Told, silos: Sequence[str]) -> Iterator[dict[str, Any]]:
    quartiles = one.get("quartiles", [""] * 3)
    yield {**one, **dict(zip(("q1", "median", "q3"), quartiles, strict=True)), "level": ""}
    yield from one.get("levels", ())
    if histogram := one.get("histogram"):
        ends = itertools.pairwise(["", *(f"{edge:.15g}" for edge in histogram["edges"]), ""])
        for (low, high), count in zip(ends, histogram["counts"], strict=True):
            yield {"level": f"[{low}, {high})", "count": count}
    for of in ({**one, "level": ""}, *one.get("levels", ())):
        for silo, figures in zip(silos if "silos" in of else (), of.get("silos", ()), strict=True):
            yield {"level": of["level"], "silo": silo, **figures}
