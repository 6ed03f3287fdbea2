"""The noised table of a run, in the terminal, as CSV and as LaTeX."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mpifl.common import one_line, tables
from mpifl.common.pages import Figure, Table
from mpifl.report.runs import units
from mpifl.report.terminal.printed_table import print_table, write_table

FILE = "dptable"
UNIT = "one row added or removed, in any split of its silo; k rows of one person: k times epsilon, more delta"
GIVEN = "the means, deviations, levels and fills in federation.json count as known, and have no noise"
HEADS = ("", "value", "SD of noise")
READ = (
    f"Unit of privacy: {UNIT}.",
    f"Epsilon is given the encoding: {GIVEN}.",
    "federation.json also has the exact rows and classes of each silo; do not give it away with this table.",
    "Bounds must be stated from what is known without the data: epsilon does not cover those read off it.",
    "A 95 % interval of the noise is the value plus or minus 1.96 SD; that of means is of first order.",
    "Counts may be below 0. Numbers were clipped to the bounds; the outer bins have the others.",
    "Not told, since they have no noise: minimum, maximum, exact quantiles, correlations.",
)
COLUMNS = ("variable", "level", "figure", "value", "noise")


def show_noised(run: Path, record: Mapping[str, Any]) -> None:
    """Print the noised table of a run's record, and write it into the run folder as CSV and LaTeX.

    Raises:
        InputError: a file cannot be written.
    """
    rows, said = [*_rows(record["noised"])], _said(record, tables(run / "job.toml"))
    files = {
        "csv": units.csv_table(COLUMNS, record["noised"]["figures"]),
        "tex": units.as_latex(HEADS, rows, said),
    }
    write_table(print_table(HEADS, rows, said), "table", run / FILE, files)


def _said(record: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """Return lines on what is protected and what the figures are."""
    delta = job.get("privacy", {}).get("delta")
    at, epsilon = f"{delta:g}", record.get("epsilon", math.nan)
    return [
        f"Privacy: epsilon {epsilon:.4g} at delta {at}, for all figures of this table.",
        f"Other tables and trainings add to it. At a site, mpifl privacy --delta {at} tells the total.",
        *READ,
    ]


def figures_of_noised(noised: Mapping[str, Any]) -> list[Figure]:
    """Return the table for a run's page."""
    return [Figure("Table with noise", "", [Table.of(HEADS, [*_rows(noised)])], wide=True)]


def _rows(noised: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield a row for each figure: its name, its value and the deviation of its noise."""
    for one in noised["figures"]:
        name, level = one_line(one["variable"]), one_line(one["level"])
        said = f"  {name} {level}" if level else f"{name}, {one['figure']}"
        yield [said, *_digits(one["value"], one["noise"])]


def _digits(value: float, noise: float) -> tuple[str, str]:
    """Write a figure to the second digit of its noise."""
    decimals = min(max(1 - math.floor(math.log10(noise)), 0), 9)
    return f"{value:,.{decimals}f}", f"{noise:,.{decimals}f}"
