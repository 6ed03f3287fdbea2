"""The coefficients of a regression, in the terminal and as a file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from mpifl.common import InputError, write_atomic
from mpifl.report.runs import doubts, read_run, trained_on
from mpifl.run.folder import read_environment, read_metrics

COLUMNS = (
    *("name", "estimate", "error", "statistic", "p", "low", "high"),
    *("odds_ratio", "hazard_ratio", "against", "deviation"),
)
SETTLED = 1e-8
"""The decrement of Newton's method below which a fit's digits stand."""


def show_coefficients(run: Path, to: Path | None = None) -> None:
    """Print the coefficients of a run's last round; with `to`, also write them as CSV.

    Raises:
        InputError: the run has none, or the file cannot be written.
    """
    record: dict[str, Any] = next((one for one in reversed(read_metrics(run)) if "coefficients" in one), {})
    if not record:
        raise InputError(f"{run}: has no coefficients; a run of [algorithm] name = 'newton' or 'cox' has")
    rows = record["coefficients"]
    shown = Table(box=box.SIMPLE_HEAD)
    for name in ("column", "estimate", "error", "statistic", "p", "95 %: low", "high"):
        first = name == "column"
        shown.add_column(name, justify="left" if first else "right", overflow="fold" if first else "ellipsis")
    for row in rows:
        shown.add_row(row["name"], *_cells(row))
    console = Console()
    console.print(shown)
    if compared := [row["name"] for row in rows if row.get("reference")]:
        console.print(f"other levels of a category are compared with: {', '.join(compared)}")
    if units := [f"{row['name']} {row['deviation']:.4g}" for row in rows if "deviation" in row]:
        console.print(f"per deviation of the column, as the shards have it: {', '.join(units)}")
    if left_out := [row["name"] for row in rows if row.get("left_out") and not row.get("reference")]:
        console.print(f"left out, since they follow from the others or are constant: {', '.join(left_out)}")
    told = f"log-likelihood {record['log_likelihood']:.4f}, AIC {record['aic']:.2f}"
    events = f", {record['events']} events" if "events" in record else ""
    console.print(f"{record['rows']} rows{events}, {told}, after {record['round']} rounds")
    if "ridge" in record:
        console.print(f"ridge = {record['ridge']:g} draws estimates to 0; p and intervals leave that out")
    if doubt := doubts(trained_on(read_run(run), read_environment(run))):
        console.print(doubt)
    if record["decrement"] > SETTLED:
        what = (
            f"these coefficients have not settled (decrement {record['decrement']:.2g}), and are not written"
        )
        raise InputError(f"{run}: {what}; train for more rounds by --resume --set rounds=...")
    if to is not None:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomic(to, text.getvalue().encode())


def _cells(row: dict[str, Any]) -> list[str]:
    if row.get("left_out"):
        return ["reference" if row.get("reference") else "–"]
    p = f"{row['p']:.4f}" if row["p"] >= 1e-4 else f"{row['p']:.1e}"
    low, high = f"{row['low']:.4g}", f"{row['high']:.4g}"
    return [f"{row['estimate']:.5g}", f"{row['error']:.4g}", f"{row['statistic']:.3f}", p, low, high]
