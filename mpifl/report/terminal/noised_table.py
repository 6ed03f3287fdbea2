"""The noised table of a run, in the terminal and as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from mpifl.common import InputError, one_line, tables, write_atomic
from mpifl.report.observers import wide_console

FILE = "dptable.csv"
UNIT = "one row added or removed, in any split of its silo; k rows of one person: k times epsilon, more delta"
GIVEN = "the means, deviations, levels and fills in federation.json count as known, and have no noise"
COLUMNS = ("variable", "level", "figure", "value", "noise")


def show_noised(run: Path, record: Mapping[str, Any]) -> None:
    """Print the noised table of a run's record, and write it into the run folder as CSV.

    Raises:
        InputError: the file cannot be written.
    """
    console, shown = wide_console(), Table(box=box.SIMPLE_HEAD)
    shown.add_column("", overflow="fold")
    shown.add_column("value", justify="right")
    shown.add_column("SD of noise", justify="right")
    for one in record["noised"]["figures"]:
        shown.add_row(_name(one), *_digits(one["value"], one["noise"]))
    console.print(shown)
    for line in _said(record, tables(run / "job.toml")):
        console.print(line, soft_wrap=True)
    try:
        write_atomic(run / FILE, as_csv(record["noised"]).encode())
    except OSError as error:
        raise InputError(
            f"{run / FILE}: cannot be written ({error.strerror}); make room, and retry"
        ) from None
    console.print(f"table: {run / FILE}", soft_wrap=True)


def _said(record: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """Return lines on what is protected and what the figures are."""
    delta = job.get("privacy", {}).get("delta")
    return [
        f"Privacy: epsilon {record.get('epsilon', math.nan):.4g} at delta {delta:g}, for all figures.",
        f"Unit of privacy: {UNIT}.",
        f"Epsilon is given the encoding: {GIVEN}.",
        "A 95 % interval of the noise is the value plus or minus 1.96 SD; that of means is of first order.",
        "Counts may be below 0. Numbers were clipped to the bounds; the outer bins have the others.",
        "Not told, since they have no noise: minimum, maximum, exact quantiles, correlations.",
    ]


def _name(one: Mapping[str, Any]) -> str:
    name, level = one_line(one["variable"]), one_line(one["level"])
    return f"  {name} {level}" if level else f"{name}, {one['figure']}"


def _digits(value: float, noise: float) -> tuple[str, str]:
    """Write a figure to the second digit of its noise."""
    decimals = min(max(1 - math.floor(math.log10(noise)), 0), 9)
    return f"{value:,.{decimals}f}", f"{noise:,.{decimals}f}"


def as_csv(noised: Mapping[str, Any]) -> str:
    """Return all figures with all digits, a line each."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(noised["figures"])
    return text.getvalue()
