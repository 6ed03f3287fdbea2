"""Progress on the terminal of rank 0."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console as Terminal
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from mpifl.common import Names
from mpifl.learning.metrics import ACCURACY, MetricInfo
from mpifl.report.observers.observer import TOGETHER, Observer, Record, judged, worst_silo
from mpifl.report.observers.site_figures import sites_said
from mpifl.run.folder import number

MOST_LINES = 100
"""How many rounds a log hears of where not all are asked for."""
MOST_SILOS = 8
"""How many silos that were left out a round's line names."""
FIGURES = (
    ("backdoor_success", "backdoor", ".2%"),
    ("norm_leak_auc", "label leak", ".2%"),
    ("epsilon", "epsilon", ".3g"),
    ("noise_std", "deviation of the noise", ".3g"),
    ("clipped", "clipped", ".0%"),
    ("clipped_examples", "clipped", ".0%"),
)
"""More figures of a round, where it has them: what they are called, and how they are written."""
PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
"""How a terminal prints names, which are text and no markup."""


class Console(Observer):
    """A line a round above a progress bar with the time left; without a terminal a line now and then.

    What the user should see (a silo left out, a checkpoint that was not written) is told even if nothing else
    is.
    """

    def __init__(
        self,
        rounds: int,
        wanted: bool | str = True,
        names: Names | None = None,
        metric: MetricInfo = ACCURACY,
        valid: bool = False,
    ) -> None:
        self._names, self._metric, self._valid = names or Names(), metric, valid
        live = on_terminal() and bool(wanted)
        self._shown, self._each = bool(wanted), live or wanted == "always"
        self._rounds, self._told_part = rounds, 0
        self._terminal = Terminal(
            force_terminal=live, force_interactive=live, width=None if live else 120, **PLAIN
        )
        self._live = live
        self._progress = Progress(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=self._terminal,
            disable=not live,
            # by default, rounds that take longer than half a minute tell nothing
            speed_estimate_period=24 * 3600,
        )
        self._task = self._progress.add_task("", total=rounds)
        self._told: set[tuple[str, str]] = set()
        self._notes: list[str] = []

    def begin(self, round: int, title: str) -> None:
        """Start the progress line."""
        if self._shown:
            self._print(title, soft_wrap=False)
            if round:
                self._print(f"continues after round {round:,}, from its checkpoint")
            self._told_part = round * MOST_LINES // self._rounds
            self._progress.reset(self._task, completed=round)
            self._progress.start()

    def before(self, record: Record) -> None:
        """Tell how pretrained weights score before the first round."""
        if self._shown and judged(record, self._metric) is not None:
            self._print(f"before round 1  {figures_of(record, self._names, self._metric, self._valid)}")

    def round(self, record: Record) -> None:
        """Tell what a round brought, and the first time also why a silo was left out; move the bar on."""
        self._progress.update(self._task, completed=record["round"])
        if self._shown and (self._each or self._is_due(record)):
            figures = figures_of(record, self._names, self._metric, self._valid)
            line = f"round {record['round']}  {record['seconds']:.2f} s  {figures}"
            self._print(line)
        together: dict[str, list[str]] = {}
        for silo, fault in (record.get("faults") or {}).items():
            if (silo, fault) not in self._told:
                self._told.add((silo, fault))
                before = re.compile(rf"silo {re.escape(self._names[silo])}(?!\w)")
                if not any(fault in note and before.search(note) for note in self._notes):
                    together.setdefault(fault, []).append(silo)
        for fault, silos in together.items():
            self.note(f"round {record['round']}: {without(silos, self._names)}: {fault}")

    def note(self, text: str) -> None:
        """Print a line above the progress line; trouble is told with or without a terminal."""
        self._notes.append(text)
        if self._shown and self._each:
            self._print(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the terminal as it was, without the bar of a run that has ended early."""
        if not self._progress.finished:
            self._progress.update(self._task, visible=False)
        self._progress.stop()

    def _is_due(self, record: Record) -> bool:
        """Tell whether a log hears of a round: of one that was scored, or of another if none was for long."""
        part = record["round"] * MOST_LINES // self._rounds
        if part - self._told_part <= (judged(record, self._metric) is None):
            return False
        self._told_part = part
        return True

    def _print(self, text: str, soft_wrap: bool = True) -> None:
        """Print a line; once its reader has gone away (`| head`), only trouble is told, on standard error."""
        try:
            self._terminal.print(text, soft_wrap=soft_wrap)
        except SystemExit:  # rich would end the program
            self._shown = False


def without(silos: list[str], names: Names) -> str:
    """Return `without silo cleveland`; of many silos the first ones' names."""
    return f"without {_listed(silos, names)}"


def _listed(silos: list[str], names: Names) -> str:
    return names.listed(silos, MOST_SILOS)


def weighed(weights: dict[str, float], names: Names) -> str:
    """Return how many silos a rule has given a weight; where all have one, the least."""
    chosen = sum(weight != 0 for weight in weights.values())
    if chosen < len(weights):
        return f"weight to {chosen} of {len(weights)} silos"
    least = min(weights, key=weights.__getitem__)
    return f"least weight {weights[least]:.2g} (silo {names[least]})"


def figures_of(
    record: Record, names: Names | None = None, metric: MetricInfo = ACCURACY, valid: bool = False
) -> str:
    """Return a round's loss and main metric in a few words; `valid` says that silos score validation rows."""
    names, parts = names or Names(), []
    if (loss := number(record, "train_loss")) is not None:
        parts.append(f"loss {loss:{'.4f' if loss < 1e6 else '.3g'}}")
    if (found := judged(record, metric)) is not None:
        rows = "all silos' validation rows" if valid else TOGETHER
        words = {metric.test: f"test {metric.name}", metric.pooled: f"{metric.name} of {rows}"}
        words[metric.weighted] = f"silos' mean {metric.name} by {'validation rows' if valid else 'examples'}"
        parts.append(f"{words[found[0]]} {metric.write(found[1])}")
    if (worst := number(record, f"{metric.silo}_worst")) is not None:
        name = worst_silo(record, metric)
        parts.append(f"worst silo {metric.write(worst)}" + (f" (silo {name})" if name else ""))
    if weights := _weights(record):
        parts.append(weighed(weights, names))
    if isinstance(silos := record.get("suspected"), list) and silos:
        parts.append(f"suspected {_listed(silos, names)}")
    parts += [f"{said} {value:{form}}" for key, said, form in FIGURES
              if (value := number(record, key)) is not None]  # fmt: skip
    if parties := int(number(record, "parties") or 0):
        parts.append(f"{parties} {'parties' if parties != 1 else 'party'}")
    parts += sites_said(record)
    if faults := record.get("faults"):
        parts.append(without(list(faults), names))
    return "  ".join(parts)


def _weights(record: Record) -> dict[str, float]:
    held = record.get("weights")
    held = held if isinstance(held, dict) else {}
    return {silo: value for silo in held if (value := number(held, silo)) is not None}


def on_terminal() -> bool:
    """Whether a person watches: Open MPI gives its ranks a terminal always,
    so the launcher's own output decides."""
    if not sys.stdout.isatty():
        return False
    if "OMPI_COMM_WORLD_SIZE" not in os.environ:
        return True
    try:
        target = str(Path(f"/proc/{os.getppid()}/fd/1").readlink())
    except OSError:
        return False
    return target.startswith(("/dev/pts/", "/dev/tty"))


def wide_console() -> Terminal:
    """Return a console that does not squeeze a table into 80 columns where nothing says how wide it may be.

    What it prints is names: text, and no markup.
    """
    width = None if on_terminal() else 300
    return Terminal(width=width, force_terminal=None if width is None else False, **PLAIN)


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; its first column holds names, the others numbers."""
    table = Table(title=title, title_justify="left")
    for nth, heading in enumerate(headings):
        table.add_column(heading, justify="right" if nth else "left")
    for row in rows:
        table.add_row(*row)
    wide_console().print(table)
