"""How a model answers, in picture files by matplotlib: curves of answers, and the confusion matrix."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mpifl.common import InputError
from mpifl.common.pages import charts
from mpifl.report.pictures.curves import PALETTE
from mpifl.report.pictures.fitted_names import put_legend, saying_once
from mpifl.report.pictures.picture import pyplot_of

FORMATS = (".pdf", ".svg")
SIDE = 4.0
"""The width and the height of a chart, in inches."""
LETTERS = 48
"""Letters of a line below a chart of this width."""
STYLES = ("-", "--", "-.", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))
"""Of classes and silos by their looks, so that they differ without colours, too."""
LOOKS: Mapping[str, tuple[str, Any, float]] = {
    "target": ("#8a8a8a", (0, (1, 2)), 1.0),
    "each": ("#b0b8c0", "-", 0.8),
    "test": (PALETTE[0], "-", 2.2),
    "mean": (PALETTE[-1], "-", 2.2),
    **{
        look: (PALETTE[nth + (nth == 5)], STYLES[nth], 1.2)  # grey is what lines are held against
        for nth, look in enumerate(charts.COLOURS)
    },
}
"""The colour, the style and the width of a line by its look."""


class Reach(NamedTuple):
    """Where a point's true value lies with 95 %: of which line, along, from and to."""

    line: str
    at: float
    low: float
    high: float


class AnswerChart(NamedTuple):
    """A chart of answers: its file, title, what lies along and beside, what is said, and its lines.

    One that has `ends` has these along and beside, to one scale, and dots for its points.
    """

    file: str
    title: str
    along: str
    beside: str
    note: str
    lines: Sequence[charts.Line]
    ends: tuple[float, float] | None = None
    below: str = ""
    """What its points are."""
    reaches: Sequence[Reach] = ()


class Confusion(NamedTuple):
    """Counts of examples by true class (a row) and by what was answered, the classes' names, whose rows these
    are, and the probability above which the second of two classes is predicted."""

    counts: Sequence[Sequence[int]]
    names: Sequence[str]
    rows: str
    threshold: float

    @property
    def by(self) -> str:
        """When a class is predicted."""
        if len(self.counts) > 2:
            return "The most likely class is predicted."
        return f"'{self.names[1]}' is predicted above a probability of {self.threshold:g}."


def draw_answers(charted: Sequence[AnswerChart], confusion: Confusion, folder: Path) -> None:
    """Draw charts and a confusion matrix, if it has counts, each as PDF and SVG.

    Raises:
        InputError: matplotlib is not there, or a file cannot be written.
    """
    pyplot = pyplot_of("--plots")
    for one in charted:
        figure, axes = pyplot.subplots(figsize=(SIDE, SIDE), layout="constrained")
        put_legend(figure, _curves(axes, one), grows=True)
        _save(figure, folder, one.file)
    if counts := confusion.counts:
        side = max(SIDE, 0.45 * len(counts) + 0.08 * max(map(len, confusion.names)) + 0.8)
        figure, axes = pyplot.subplots(figsize=(side, side), layout="constrained")
        _matrix(axes, confusion)
        _save(figure, folder, "confusion")
    pyplot.close("all")


def _curves(axes: Any, chart: AnswerChart) -> dict[str, Any]:
    """Draw the lines of a chart; return those that have names, by what the legend calls them."""
    named: dict[str, Any] = {}
    for line in chart.lines:
        colour, style, width = LOOKS[line.look]
        dots = {"marker": "o", "markersize": width + 2} if chart.ends and line.look != "target" else {}
        at = list(zip(*line.points, strict=True))
        (drawn,) = axes.plot(*at, linestyle=style, color=colour, linewidth=width, **dots)
        if of := [one for one in chart.reaches if one.line == line.name]:
            axes.vlines([one.at for one in of], [one.low for one in of], [one.high for one in of],
                        color=colour, linewidth=1.0)  # fmt: skip
        named |= {f"{line.name}{': ' if line.last else ''}{line.last or ''}": drawn} if line.name else {}
    below = "\n".join(textwrap.wrap(chart.below, LETTERS))
    axes.set(xlabel="\n".join(filter(None, (chart.along, below))), ylabel=chart.beside)
    if chart.ends:
        axes.set(xlim=chart.ends, ylim=chart.ends, aspect="equal")
    else:
        values = [value for line in chart.lines for _, value in line.points if value is not None]
        top = charts.ticks(0.0, max(values))[-1]
        axes.set(xlim=(0, 1), ylim=(0, 1.01 * top))
    return named


def _matrix(axes: Any, confusion: Confusion) -> None:
    counts, names, rows, _ = confusion
    axes.imshow(
        [[count / max(sum(row), 1) for count in row] for row in counts], cmap="Blues", vmin=0, vmax=1.4
    )
    for y, row in enumerate(counts):
        for x, count in enumerate(row):
            axes.text(x, y, f"{count:,}", ha="center", va="center", fontsize=9)
    ticks = [name.replace("$", r"\$") for name in names]
    axes.set_xticks(range(len(names)), ticks, rotation=45 if max(map(len, names)) > 4 else 0)
    axes.set_yticks(range(len(names)), ticks)
    below = "\n".join(textwrap.wrap(confusion.by, LETTERS))
    axes.set(xlabel=f"predicted\n{below}", ylabel=f"true class, {rows}")


def _save(figure: Any, folder: Path, name: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for nth, ending in enumerate(FORMATS):
            with saying_once("--plots", folder, tells=not nth):
                figure.savefig(folder / f"{name}{ending}")
    except OSError as error:
        raise InputError(f"--plots {folder}: cannot be written ({error.strerror})") from None
