"""Names with what there is to say of each, for a terminal where a table would be cut into narrow columns."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from mpifl.report.runs import wide_console

INDENT = 4


def console_of_names() -> Console:
    """Return a console as wide as its terminal or COLUMNS says; else a line is as long as it needs."""
    return Console(markup=False, emoji=False, highlight=False) if "COLUMNS" in os.environ else wide_console()


def print_stacked(console: Console, entries: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Print each name, and below it, indented, each line that there is to say of it."""
    for name, lines in entries:
        console.print(Text(name, "bold"))
        for line in filter(None, lines):
            console.print(Padding(Text(line), (0, 0, 0, INDENT)))
