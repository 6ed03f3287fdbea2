"""Prints names with lines below each, for terminals that are too narrow for a table."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from mpifl.report.observers import wide_console

INDENT = 4


def console_of_names() -> Console:
    """Return a console with the width of COLUMNS if that is set, else of `wide_console`."""
    return Console(markup=False, emoji=False, highlight=False) if "COLUMNS" in os.environ else wide_console()


def print_stacked(console: Console, entries: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Print each name, with its lines indented below."""
    for name, lines in entries:
        console.print(Text(name, "bold"))
        for line in filter(None, lines):
            console.print(Padding(Text(line), (0, 0, 0, INDENT)))
