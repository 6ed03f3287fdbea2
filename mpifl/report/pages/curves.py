"""The curves of several runs in one picture file, by matplotlib: over rounds, bytes or seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from mpifl.common import InputError
from mpifl.common.machine import floors
from mpifl.learning.metrics import MetricInfo
from mpifl.report.pages.group_colours import GroupLook, group_looks
from mpifl.report.runs import Group, Summary, legends
from mpifl.run.folder import number

LOSS = ("training loss", "train_loss", 1.0)
AXES = (("round", 0), ("MB between server and silos", 1), ("seconds", 2), ("virtual seconds", 3))
MOST_LINES = 10
"""Lines that have a name at their end."""
ROOM = 7.0
"""Per cent of a panel's height that a name takes."""


@dataclass(frozen=True)
class Curve:
    """One figure of a group of runs, where all of them have it: means over the runs, and the deviation."""

    at: np.ndarray
    """[4, n]: the round, and the MB, seconds and virtual seconds until its end; NaN if not known."""
    mean: np.ndarray
    deviation: np.ndarray


Drawn = tuple[str, GroupLook, Curve | None]
"""A line: what it is called, how it is drawn, and where it lies."""


def curve(group: Group, figure: str, scale: float = 1.0) -> Curve | None:
    """Return a figure of a group over its rounds; None where no round has it in all runs."""
    each = [_points(run, figure) for run in group.runs]
    rounds = sorted(set.intersection(*(set(points) for points in each)))
    if not rounds:
        return None
    found = np.array([[points[round] for round in rounds] for points in each])  # [runs, n, 5]
    values = scale * found[..., -1]
    deviation = values.std(axis=0, ddof=1) if len(each) > 1 else np.zeros(len(rounds))
    return Curve(found[..., :-1].mean(axis=0).T, values.mean(axis=0), deviation)


def _points(run: Summary, figure: str) -> dict[int, tuple[float, ...]]:
    known = math.nan if run.missing else 0.0  # sums that lack rounds are not drawn
    sent = accumulate(
        known + (number(r, "bytes_sent") or 0) + (number(r, "bytes_received") or 0) for r in run.records
    )
    seconds = accumulate(known + (number(r, "seconds") or 0) for r in run.records)
    clocks = (number(r, "virtual_seconds") for r in run.records)
    together = zip(run.records, sent, seconds, clocks, strict=True)
    return {
        record["round"]: (
            float(record["round"]),
            megabytes / 1e6,
            until,
            math.nan if clock is None else clock,
            value,
        )
        for record, megabytes, until, clock in together
        if (value := number(record, figure)) is not None
    }


def panels_of(metrics: Sequence[MetricInfo]) -> list[tuple[str, str, float]]:
    """Return a label, a figure and its scale for each row of the picture."""
    found = []
    for metric in metrics:
        unit, scale = (" (%)", 100.0) if metric.share else ("", 1.0)
        found.append((f"test {metric.name}{unit}", metric.test, scale))
        found.append((f"silos' mean {metric.name}{unit}", f"{metric.silo}_mean", scale))
    return [*found, LOSS]


def draw(groups: Sequence[Group], path: Path, target: float | None = None, all_panels: bool = False) -> None:
    """Draw the main metric over each of AXES that a run has; a band is the deviation over seeds.

    Args:
        groups: A line for each.
        path: A PNG, SVG or PDF.
        target: A value of the main metric to mark.
        all_panels: Draw the silos' mean and the training loss, too.

    Raises:
        InputError: matplotlib is not installed or the file cannot be written.
    """
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {path}: ends in '{path.suffix}'; it must be .png, .svg or .pdf")
    pyplot = _pyplot()
    named = zip(group_looks(groups), legends(groups), groups, strict=True)
    ranked = sorted(named, key=lambda one: one[0].rank)
    groups = [group for _, _, group in ranked]
    metrics = list(dict.fromkeys(run.metric for group in groups for run in group.runs))
    offered, tested = panels_of(metrics), {metric.test for metric in metrics}
    curves = {name: [curve(group, name, scale) for group in groups] for _, name, scale in offered}
    panels = [panel for panel in offered if any(curves[panel[1]])] or [LOSS]
    panels = panels if all_panels else panels[:1]
    found = [each for name in curves for each in curves[name] if each is not None]
    along = [axis for axis in AXES if any(np.isfinite(each.at[axis[1]]).any() for each in found)] or AXES[:1]
    high = 3.2 * len(panels) + (0.22 * -(-len(groups) // 2) if len(groups) > MOST_LINES else 0)
    figure, grid = pyplot.subplots(
        len(panels), len(along), figsize=(13 / 3 * len(along), high), layout="constrained", squeeze=False
    )
    for row, (label, name, scale) in zip(grid, panels, strict=True):
        marked = scale * target if name in tested and target is not None else None
        drawn = [(called, look, each) for (look, called, _), each in zip(ranked, curves[name], strict=True)]
        _row(row, along, label, name, drawn, marked)
    if len(groups) > MOST_LINES:
        _legend(figure, grid)
    try:
        figure.savefig(path, dpi=144)
    except OSError as error:
        raise InputError(f"--plot {path}: cannot be written ({error.strerror})") from None
    finally:
        pyplot.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise InputError("--plot: needs matplotlib; pip install 'mpifl[plots]'") from None
    floors.hold("plots")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _row(
    row: np.ndarray,
    over: Sequence[tuple[str, int]],
    label: str,
    name: str,
    drawn: Sequence[Drawn],
    marked: float | None,
) -> None:
    """Draw one figure of all groups over some of AXES; `marked` is its target."""
    for axes, (along, which) in zip(row, over, strict=True):
        for called, look, found in drawn:
            if found is not None:
                _line(axes, found, which, look, called)
        axes.set(xlabel=along, ylabel=label if which == 0 else "")
        axes.set_yscale("log" if name == "train_loss" else "linear")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if marked is not None:
            axes.axhline(marked, color="grey", linewidth=0.8, linestyle=(0, (4, 3)))
    if 1 < len(drawn) <= MOST_LINES:
        _name_ends(row[-1], drawn)


def _name_ends(axes: Any, drawn: Sequence[Drawn]) -> None:
    """Write the names of lines beside the panel, as high as they end, none over another."""
    scale = axes.transData + axes.transAxes.inverted()
    axes.autoscale_view()
    ends = [(scale.transform((found.at[0][-1], found.mean[-1]))[1], called, look)
            for called, look, found in drawn if found is not None]  # fmt: skip
    ends.sort(key=lambda one: -one[0])
    tops = apart([100 - 100 * float(min(max(up, 0.0), 1.0)) for up, _, _ in ends], ROOM)
    for top, (_, called, look) in zip(tops, ends, strict=True):
        text = axes.annotate(called, (1.02, 1 - top / 100), xycoords="axes fraction", va="center",
                             color=look.colour, fontsize=9, annotation_clip=False)  # fmt: skip
        text.set_parse_math(False)  # a name with dollars is no formula


def _legend(figure: Any, grid: np.ndarray) -> None:
    lines = {str(line.get_label()): line for axes in grid.flat for line in axes.get_lines()}
    named = {label: line for label, line in lines.items() if not label.startswith("_")}
    legend = figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=2, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _line(axes: Any, found: Curve, which: int, look: GroupLook, called: str) -> None:
    marker = "o" if len(found.mean) == 1 else ""
    axes.plot(
        found.at[which], found.mean, look.style, color=look.colour, label=called, marker=marker, linewidth=1.5
    )
    if found.deviation.any():
        low, high = found.mean - found.deviation, found.mean + found.deviation
        axes.fill_between(found.at[which], low, high, color=look.colour, alpha=0.15, linewidth=0)


def apart(tops: Sequence[float], gap: float) -> list[float]:
    """Return sorted places from 0 to 100, moved as little as need be to lie a gap apart."""
    found = list(tops)
    for nth in range(1, len(found)):
        found[nth] = max(found[nth], found[nth - 1] + gap)
    for nth in range(len(found) - 1, -1, -1):
        found[nth] = min(found[nth], 100 - gap * (len(found) - 1 - nth))
    return found
