"""Progress on the terminal of rank 0."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console as Terminal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mpifl.tracking.base import Observer, Record


class Console(Observer):
    """A progress line with round, loss, accuracy and time left; plain lines where asked for without a terminal.

    What the user should see (a silo left out, a checkpoint that was not written) is told even if nothing else is.
    """

    def __init__(self, rounds: int, wanted: bool | str = True) -> None:
        live = on_terminal() and bool(wanted)
        self._shown = live or wanted == "always"
        self._terminal = Terminal(force_terminal=live, force_interactive=live, width=None if live else 120)
        self._live = live
        self._progress = Progress(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=self._terminal,
            disable=not live,
        )
        self._task = self._progress.add_task("", total=rounds, figures="")

    def begin(self, round: int, title: str) -> None:
        """Start the progress line."""
        if self._shown:
            self._terminal.print(title, highlight=False)
            self._progress.update(self._task, completed=round)
            self._progress.start()

    def round(self, record: Record) -> None:
        """Move the progress line on."""
        figures = figures_of(record)
        self._progress.update(self._task, completed=record["round"], figures=figures)
        if self._shown and not self._live:
            self._terminal.print(f"round {record['round']}  {figures}  {record['seconds']:.2f} s", highlight=False)

    def note(self, text: str) -> None:
        """Print a line above the progress line; trouble is told with or without a terminal."""
        if self._shown:
            self._terminal.print(text, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()


def figures_of(record: Record) -> str:
    """Return a round's loss and accuracy in a few words."""
    parts = []
    if "train_loss" in record:
        parts.append(f"loss {record['train_loss']:.4f}")
    if "test_accuracy" in record:
        parts.append(f"accuracy {record['test_accuracy']:.2%}")
    if record.get("faults"):
        parts.append(f"without silo {', '.join(record['faults'])}")
    return "  ".join(parts)


def on_terminal() -> bool:
    """Whether a person watches: Open MPI gives its ranks a terminal always, so the launcher's own output decides."""
    if not sys.stdout.isatty():
        return False
    if "OMPI_COMM_WORLD_SIZE" not in os.environ:
        return True
    try:
        target = str(Path(f"/proc/{os.getppid()}/fd/1").readlink())
    except OSError:
        return False
    return target.startswith(("/dev/pts/", "/dev/tty"))
