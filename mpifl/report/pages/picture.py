"""The main metric of several runs in one picture file, by matplotlib: over rounds, bytes or seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpifl.common import InputError, suggested
from mpifl.common.machine import floors
from mpifl.report.pages.curves import AXES, Curve, GroupLook, curve, group_looks
from mpifl.report.runs import Drawing, Group, judged_by_all, legends

ALONG = ("rounds", "bytes", "seconds", "virtual")
"""What --panel calls AXES."""
SETTINGS = {"pdf.fonttype": 42, "axes.formatter.useoffset": False, "axes.formatter.limits": (-5, 9)}
"""Fonts that printers take, and numbers in full on the axes."""
DEFAULT = Drawing()
Lines = list[tuple[str, GroupLook, Curve]]
"""What each line is called, how it is drawn, and where it lies."""


class Pictured(NamedTuple):
    """What a picture has: what its values are, its lines, the best first, and the target."""

    label: str
    lines: Lines
    target: float | None
    unit: str


def draw(
    groups: Sequence[Group], path: Path, target: float | None = None, drawing: Drawing = DEFAULT
) -> None:
    """Draw the main metric over each of AXES that a run has; a band is the deviation over seeds.

    Args:
        groups: A line for each.
        path: A PNG, SVG or PDF.
        target: A value of the main metric to mark.
        drawing: Which panels, how wide and high.

    Raises:
        InputError: matplotlib is not there, no run has a panel, or the file cannot be written.
    """
    check_picture(path)
    pyplot = _pyplot()
    shown = _pictured(groups, target)
    along = _chosen(shown.lines, drawing.panels)
    rows = 0.22 * -(-len(shown.lines) // 2)  # of the legend
    with pyplot.rc_context(SETTINGS):
        figure, (panels,) = pyplot.subplots(
            1, len(along), figsize=drawing.size or (13 / 3 * len(along), 3.2 + rows),
            layout="constrained", squeeze=False,
        )  # fmt: skip
        for axes, (name, which) in zip(panels, along, strict=True):
            _panel(axes, shown, which)
            axes.set(xlabel=name)
        panels[0].set_ylabel(f"{shown.label}{f' ({shown.unit})' if shown.unit else ''}")
        legend = figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2,
                               frameon=False)  # fmt: skip
        for text in legend.get_texts():
            text.set_parse_math(False)  # a name with dollars is no formula
        try:
            figure.savefig(path, dpi=144)
        except OSError as error:
            raise InputError(f"--plot {path}: cannot be written ({error.strerror})") from None
        finally:
            pyplot.close(figure)


def _pictured(groups: Sequence[Group], target: float | None) -> Pictured:
    """Return what judges the runs; of runs that nothing judges the training loss."""
    metric = groups[0].runs[0].metric
    judged = judged_by_all([group for group in groups if group.runs[0].metric == metric])
    figure = judged.curve() if judged else metric.test
    unit, scale = ("%", 100.0) if metric.share else ("", 1.0)
    by_valid = any(run.by_valid for group in groups for run in group.runs)
    held = "all validation rows" if by_valid else "all held-out rows"
    label = f"{metric.label} on {held}{'' if figure == metric.pooled else ', mean by examples'}"
    label = f"test {metric.label}" if figure == metric.test else label
    targets = {run.judged_by for group in groups for run in group.runs}
    target = scale * target if target is not None and figure in targets else None
    lines = _lines(groups, figure, scale)
    if lines:
        return Pictured(label, lines, target, unit)
    return Pictured("training loss", _lines(groups, "train_loss", 1.0), None, "")


def _lines(groups: Sequence[Group], figure: str, scale: float) -> Lines:
    named = zip(legends(groups), group_looks(groups), groups, strict=True)
    found = [(name, look, curve(group, figure, scale)) for name, look, group in named]
    return sorted(((name, look, of) for name, look, of in found if of), key=lambda one: one[1].rank)


def check_picture(path: Path) -> None:
    """See that a file may be a picture.

    Raises:
        InputError: its name does not end so.
    """
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {path}: ends in '{path.suffix}'; it must be .png, .svg or .pdf")


def _pyplot() -> Any:
    """Return matplotlib's pyplot, for files alone; raise InputError if it is not there."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("--plot: needs matplotlib; pip install 'mpifl[plots]'") from None
    floors.hold("plots")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _chosen(lines: Lines, panels: Sequence[str]) -> list[tuple[str, int]]:
    """Return the axes that are wanted, of those that a run has."""
    there = [axis for axis in AXES if any(np.isfinite(of.at[axis[1]]).any() for _, _, of in lines)]
    offered = [ALONG[which] for _, which in there or AXES[:1]]
    for panel in panels:
        if panel not in offered:
            hint = suggested(panel, offered) or f"; they are {', '.join(offered)}"
            raise InputError(f"--panel {panel}: is not a panel of these runs{hint}")
    return [axis for axis in there or AXES[:1] if not panels or ALONG[axis[1]] in panels]


def _panel(axes: Any, shown: Pictured, which: int) -> None:
    """Draw all lines over one of AXES, and the target."""
    for name, look, of in shown.lines:
        marker, colour = "o" if len(of.mean) == 1 else "", look.colour
        axes.plot(of.at[which], of.mean, look.style, color=colour, label=name, marker=marker, linewidth=1.5)
        if of.deviation.any():
            low, high = of.mean - of.deviation, of.mean + of.deviation
            axes.fill_between(of.at[which], low, high, color=colour, alpha=0.15, linewidth=0)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if which == 0:
        axes.xaxis.get_major_locator().set_params(integer=True)
    if (target := shown.target) is not None:
        axes.axhline(target, color="grey", linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(f"target {target:g}{shown.unit}", (0.01, target), color="grey", fontsize="x-small",
                      xytext=(0, 2), textcoords="offset points",
                      xycoords=axes.get_yaxis_transform())  # fmt: skip
