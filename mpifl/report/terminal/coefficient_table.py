"""The coefficients of a regression, in the terminal and as files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from mpifl.common import InputError, write_named
from mpifl.report.observers import on_terminal, wide_console
from mpifl.report.pictures import REFERENCE, fit_heads, fit_of, fit_rows, said_of_fit, unsettled
from mpifl.report.runs import fit_doubt, read_run, trained_on, units
from mpifl.report.terminal.printed_table import longest_word, told_last
from mpifl.run.folder import read_environment, read_metrics

COLUMNS = (
    *("column", "estimate", "error", "statistic", "p", "low", "high"),
    *("odds_ratio", "hazard_ratio", "rate_ratio", "ratio_low", "ratio_high", "against", "deviation"),
    *("fixed", "fixed_error", "q", "q_p", "i2"),
)
SPARED = (("statistic",), ("95 %: low", "high"), ("error",))
"""What a narrow terminal is spared, the first first: it follows from what stays."""
BETWEEN = 3
"""The blanks beside each cell, and behind it."""


def show_coefficients(run: Path, to: Path | None = None, latex: Path | None = None) -> None:
    """Print the coefficients of a run's last round; also write them as CSV `to` a file, and as `latex`.

    Raises:
        InputError: the run has none, they have not settled, or a file cannot be written.
    """
    told_last(run, "coefficients")
    if not (fit := fit_of(read_metrics(run))):
        raise InputError(f"{run}: has no coefficients; a run of [algorithm] name = 'newton' or 'cox' has")
    rows = fit_rows(fit)
    said = said_of_fit(fit, fit_doubt(trained_on(read_run(run), read_environment(run))))
    console = Console() if on_terminal() or "COLUMNS" in os.environ else wide_console()
    heads = fit_heads(fit)
    spared = _show(heads, rows, console)
    for line in said:
        console.print(line)
    if spared:
        console.print(f"no room here for {', '.join(spared)}: widen the terminal, or write --csv FILE")
    if doubt := unsettled(fit):
        raise InputError(f"{run}: nothing is written: {doubt}")
    if to is not None:
        told = [{"column": row["name"], **row} for row in fit["coefficients"]]
        write_named("--csv", to, units.csv_table(COLUMNS, told))
    if latex is not None:
        write_named("--latex", latex, units.as_latex(heads, rows, said, [REFERENCE]))


def _show(heads: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> list[str]:
    """Print the table with whole figures and names; return the heads for which there is no room."""
    wide = {head: max(map(len, (head, *(row[nth] for row in rows)))) for nth, head in enumerate(heads)}
    spared: list[str] = []
    for some in SPARED:
        if 1 + sum(width + BETWEEN for head, width in wide.items() if head not in spared) <= console.width:
            break
        spared += some
    shown = Table(box=box.SIMPLE_HEAD)
    kept = [nth for nth, head in enumerate(heads) if head not in spared]
    for nth in kept:
        shown.add_column(heads[nth], justify="right" if nth else "left", no_wrap=nth > 0, overflow="fold")
    shown.columns[0].min_width = longest_word(row[0] for row in rows)
    for row in rows:
        shown.add_row(*(row[nth] for nth in kept))
    console.print(shown)
    return spared
