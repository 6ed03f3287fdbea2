"""Tables of a run in the terminal and as files, whatever they are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from mpifl.common import InputError, write_atomic
from mpifl.report.observers import wide_console
from mpifl.run.folder import read_metrics

NARROW = 110
LONG_WORD = 26
"""The widest that a column of names is, so as to break no word."""


def longest_word(names: Iterable[str]) -> int:
    """Return how wide a column of names is that breaks no word, up to a width."""
    return min(max((len(word) for name in names for word in name.split()), default=0), LONG_WORD)


def told_last(run: Path, key: str) -> Any:
    """Return what the last round of a run that has it tells under a key; None without such a round.

    Raises:
        InputError: there is no such folder.
    """
    return (record_last(run, key) or {}).get(key)


def record_last(run: Path, key: str) -> Mapping[str, Any] | None:
    """Return the record of the last round of a run that has a key; None without such a round.

    Raises:
        InputError: there is no such folder.
    """
    if not run.is_dir():
        raise InputError(f"{run}: is not a folder; name the folder of a run")
    return next((one for one in reversed(read_metrics(run)) if key in one), None)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], said: Sequence[str]) -> Console:
    """Print a table whose first column names its rows, and what is said of it; return the terminal."""
    console = wide_console()
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, int(console.width >= NARROW)))  # columns lie nearer
    for nth, head in enumerate(heads):
        shown.add_column(head, justify="right" if nth else "left", overflow="fold")
    shown.columns[0].min_width = longest_word(row[0] for row in rows)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    for line in said:
        console.print(line, soft_wrap=True)
    return console


def write_table(console: Console, what: str, to: Path, files: Mapping[str, str]) -> None:
    """Write the texts of files `to` a path without an ending, by their endings, and print where they are.

    Raises:
        InputError: one of them cannot be written.
    """
    for kind, text in files.items():
        path = to.with_name(f"{to.name}.{kind}")
        try:
            write_atomic(path, text.encode())
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror}); make room, and retry") from None
    first, *others, last = (f".{kind}" for kind in files)
    console.print(f"{what}: {to}{', '.join([first, *others])} and {last}", soft_wrap=True)
