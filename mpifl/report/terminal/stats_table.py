"""The table of who is in the data, in the terminal and as files."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from mpifl.common import InputError, one_line, write_atomic
from mpifl.report.observers import wide_console
from mpifl.report.pages import page_of_stats
from mpifl.report.runs import units
from mpifl.report.terminal.noised_table import show_noised
from mpifl.run.folder import read_metrics

WITHHELD, FILE = "withheld", "tableone"
DIGITS, MOST_DECIMALS = 3, 9
MOST_SILOS = 6
"""Silos in the terminal; the files have more."""
COLUMNS = (
    *("variable", "level", "silo", "count", "share", "missing", "mean", "deviation"),
    *("q1", "median", "q3", "minimum", "maximum", "smd", "between", "withheld"),
)
NARROW = 110
LONG_WORD = 26
"""The widest that a column of names is, so as to break no word."""
APART = ["SMD", "between silos"]
Told = Mapping[str, Any]


def longest_word(names: Iterable[str]) -> int:
    """Return how wide a column of names is that breaks no word, up to a width."""
    return min(max((len(word) for name in names for word in name.split()), default=0), LONG_WORD)


def fitting_table(width: int) -> Table:
    """Return an empty table, whose columns lie nearer together in a narrow terminal."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, int(width >= NARROW)))


def told_last(run: Path, key: str) -> Any:
    """Return what the last round of a run that has it tells under a key; None without such a round.

    Raises:
        InputError: there is no such folder.
    """
    return (record_last(run, key) or {}).get(key)


def record_last(run: Path, key: str) -> Told | None:
    """Return the record of the last round of a run that has a key; None without such a round.

    Raises:
        InputError: there is no such folder.
    """
    if not run.is_dir():
        raise InputError(f"{run}: is not a folder; name the folder of a run")
    return next((one for one in reversed(read_metrics(run)) if key in one), None)


def show_stats(run: Path) -> None:
    """Print the table of a run, and write it into the run folder as HTML, CSV and LaTeX; a noised one as CSV.

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
    write_table(run / FILE, page_of_stats(told, heads, rows, said), as_csv(told), latex)
    console.print(f"table: {run / FILE}.html, .csv and .tex", soft_wrap=True)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], said: Sequence[str]) -> Console:
    """Print a table whose first column names its rows, and what is said of it; return the terminal."""
    console = wide_console()
    shown = fitting_table(console.width)
    for nth, head in enumerate(heads):
        shown.add_column(head, justify="right" if nth else "left", overflow="fold")
    shown.columns[0].min_width = longest_word(row[0] for row in rows)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    for line in said:
        console.print(line, soft_wrap=True)
    return console


def write_table(to: Path, page: str, figures: str, latex: str) -> None:
    """Write a table as HTML, CSV and LaTeX `to` a path without an ending.

    Raises:
        InputError: one of them cannot be written.
    """
    for kind, text in {"html": page, "csv": figures, "tex": latex}.items():
        path = to.with_name(f"{to.name}.{kind}")
        try:
            write_atomic(path, text.encode())
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror}); make room, and retry") from None


def said_of(told: Told) -> list[str]:
    """Return lines that say what is withheld, and what columns mean."""
    few = f"Counts from 1 to {told['least'] - 1} are withheld, and what would tell them by subtraction. "
    few += "Counts of histograms are rounded."
    parted = "SMD: the largest standardised difference of two silos' means. Between silos: this share of the "
    return [few] * (told["least"] > 1) + [f"{parted}squares lies between silos' means."] * ("silos" in told)


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
            yield [name, cell, *(_silos(of) or [""] * wide)]


def _lines(one: Told) -> Iterator[tuple[str, str, Told]]:
    """Yield the name and the text of each line of a variable, and what silos tell of it."""
    name = one_line(one["name"])
    if one["kind"] == "numbers":
        yield (f"{name}, mean (SD)", _mean(one), one) if "mean" in one else (name, WITHHELD, {})
    else:
        yield f"{name}, n (%)", "" if one["levels"] else WITHHELD, one
        yield from ((f"  {one_line(of['level'])}", _counted(of), of) for of in one["levels"])
    if "quartiles" in one:
        low, median, high = _told_to(one["quartiles"][2] - one["quartiles"][0], one["quartiles"])
        yield "  median [quartiles]", f"{median} [{low}, {high}]", {}
    if "minimum" in one:
        ends = one["minimum"], one["maximum"]
        yield "  minimum, maximum", ", ".join(_told_to(one["deviation"], ends)), {}
    if "missing" in one:
        yield "  gaps that were filled", WITHHELD if one["missing"] is None else f"{one['missing']:,}", {}


def _silos(of: Told) -> list[str]:
    """Return what silos tell of a variable or a level, and how far they part; nothing where they do not."""
    if "silos" not in of:
        return []
    means = [_share(silo["mean"]) if "level" in of else _mean(silo) for silo in of["silos"]]
    smd = f"{of['smd']:.2f}" if "smd" in of else ""
    return [*means, smd, _share(of["between"]) if "between" in of else ""]


def _mean(of: Told) -> str:
    mean, deviation = _told_to(of["deviation"], (of["mean"], of["deviation"]))
    return f"{mean} ({deviation})"


def _counted(level: Told) -> str:
    return WITHHELD if level["count"] is None else f"{level['count']:,} ({_share(level['share'])})"


def _share(share: float) -> str:
    return f"{100 * share:.1f}%"


def _told_to(spread: float, numbers: Sequence[float]) -> list[str]:
    """Write numbers with as many decimals as give 3 digits of their spread."""
    if not spread:
        return [f"{number:,.4g}" for number in numbers]
    decimals = min(max(DIGITS - 1 - math.floor(math.log10(spread)), 0), MOST_DECIMALS)
    return [f"{number:,.{decimals}f}" for number in numbers]


def as_csv(told: Told) -> str:
    """Return all figures with all digits: a line for each variable, level, bin, and silo of these."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for one in told["variables"]:
        for row in _csv_rows(one, told.get("silos", ())):
            full = {key: WITHHELD if value is None else value for key, value in row.items()}
            writer.writerow({"variable": one["name"], **full})
    return text.getvalue()


def _csv_rows(one: Told, silos: Sequence[str]) -> Iterator[dict[str, Any]]:
    quartiles = one.get("quartiles", [""] * 3)
    yield {**one, **dict(zip(("q1", "median", "q3"), quartiles, strict=True)), "level": ""}
    yield from one.get("levels", ())
    if histogram := one.get("histogram"):
        ends = itertools.pairwise(["", *map(repr, histogram["edges"]), ""])
        for (low, high), count in zip(ends, histogram["counts"], strict=True):
            yield {"level": f"[{low}, {high})", "count": count}
    for of in ({**one, "level": ""}, *one.get("levels", ())):
        for silo, figures in zip(silos if "silos" in of else (), of.get("silos", ()), strict=True):
            yield {"level": of["level"], "silo": silo, **figures}
