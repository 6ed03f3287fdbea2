"""The curves of several runs in one picture file, by matplotlib: over rounds, bytes or seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpifl.common import InputError, suggested
from mpifl.common.machine import floors
from mpifl.common.pages import charts
from mpifl.report.pictures.curves import AXES, Curve, GroupLook, curve, group_looks, lie_above
from mpifl.report.pictures.fitted_names import LineEnd, check_whole, put_names, saying_once
from mpifl.report.runs import Drawing, Group, judged_by_all, legends

ALONG = ("rounds", "bytes", "seconds", "virtual")
"""What --panel calls AXES."""
KINDS = ("test", "pooled", "silos", "loss", *ALONG)
"""What --panel takes, of other runs at least."""
SETTINGS = {"pdf.fonttype": 42, "axes.formatter.useoffset": False, "axes.formatter.limits": (-5, 9)}
"""Fonts that printers take, and numbers in full on the axes."""
NARROW, SMALL = 4.0, {"font.size": 8}
"""The width below which a panel has small text, in inches, and how that is set."""
LINE = 1.5
"""The width of a line; one that others lie on is wider, so that it shows beside them."""
DEFAULT = Drawing()


class PictureRow(NamedTuple):
    """A row of the picture: what --panel calls it, its label, its figure, the figure's scale."""

    kind: str
    label: str
    figure: str
    scale: float


class DrawnLine(NamedTuple):
    """A line: what it is called, how it is drawn, and where it lies."""

    called: str
    look: GroupLook
    curve: Curve | None


LOSS = PictureRow("loss", "training loss", "train_loss", 1.0)


def rows_of(groups: Sequence[Group]) -> list[PictureRow]:
    """Return the rows that a picture may have: of each metric first what judges."""
    found = []
    for metric in dict.fromkeys(run.metric for group in groups for run in group.runs):
        of = [group for group in groups if group.runs[0].metric == metric]
        judged, by_valid = judged_by_all(of), any(run.by_valid for group in of for run in group.runs)
        unit, scale = (" (%)", 100.0) if metric.share else ("", 1.0)
        where = ", validation rows" if by_valid else ""
        held = "all validation rows" if by_valid else "all that silos hold out"
        rows = [
            PictureRow("test", f"test {metric.label}{unit}", metric.test, scale),
            PictureRow("silos", f"silos' mean {metric.label}{where}{unit}", f"{metric.silo}_mean", scale),
        ]
        if judged and (figure := judged.curve()) != metric.test:
            mean = "" if figure == metric.pooled else ", mean by examples"
            rows.insert(0, PictureRow("pooled", f"{metric.label} on {held}{mean}{unit}", figure, scale))
        found += rows
    return [*found, LOSS]


def draw(
    groups: Sequence[Group], path: Path, target: float | None = None, drawing: Drawing = DEFAULT
) -> None:
    """Draw the main metric over each of AXES that a run has; a band is the deviation over seeds.

    Args:
        target: A value of the main metric to mark.

    Raises:
        InputError: matplotlib or the style is not there, no run has a panel, or the file cannot be written.
    """
    check_picture(path, drawing.panels)
    pyplot = pyplot_of("--plot")
    named = zip(group_looks(groups), legends(groups), groups, strict=True)
    ranked = sorted(named, key=lambda one: one[0].rank)
    targets = {run.judged_by for group in groups for run in group.runs}
    offered = [
        (row, [DrawnLine(name, look, curve(group, row.figure, row.scale)) for look, name, group in ranked])
        for row in rows_of(groups)
    ]
    rows = _chosen(offered, drawing)
    size, grows = _size(drawing, len(rows), len(rows[0])), drawing.size is None
    wide = size[0] / len(rows[0])
    with _styled(pyplot, drawing.style, SMALL if wide < NARROW else {}):
        figure, grid = pyplot.subplots(
            len(rows), len(rows[0]), figsize=size, layout="constrained", squeeze=False
        )
        for axes, panels in zip(grid, rows, strict=True):
            for one, panel in zip(axes, panels, strict=True):
                row = panel.row
                _panel(
                    one, panel, row.scale * target if row.figure in targets and target is not None else None
                )
                one.set_ylabel(row.label if panel is panels[0] or row is not panels[0].row else "")
        figure.align_ylabels(grid[:, 0])
        try:
            put_names(figure, grid, [[one for line in of[-1].lines for one in _ends(line)] for of in rows],
                      grows=grows)  # fmt: skip
            check_whole(figure, grid, "--size {:g}x{:g}".format(*figure.get_size_inches()), grows=grows)
            with saying_once("--plot", path):
                figure.savefig(path, dpi=144)
        except OSError as error:
            raise InputError(f"--plot {path}: cannot be written ({error.strerror})") from None
        finally:
            pyplot.close(figure)


def check_picture(path: Path, panels: Sequence[str] = ()) -> None:
    """See that a file may be a picture, and that there are such panels.

    Raises:
        InputError: its name does not end so, or no run has such a panel.
    """
    for panel in panels:
        if strange := next((part for part in panel.split("/") if part not in KINDS), None):
            they = f"they are {', '.join(KINDS)}, or two of them as test/rounds{suggested(strange, KINDS)}"
            raise InputError(f"--panel {panel}: '{strange}' is not one of the panels; {they}")
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {path}: ends in '{path.suffix}'; it must be .png, .svg or .pdf")


def pyplot_of(option: str) -> Any:
    """Return matplotlib's pyplot, for files alone; raise InputError if it is not there."""
    try:
        import matplotlib
    except ImportError:
        raise InputError(f"{option}: needs matplotlib; pip install 'mpifl[plots]'") from None
    floors.hold("plots")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


@contextlib.contextmanager
def _styled(pyplot: Any, style: str | None, more: Mapping[str, float]) -> Iterator[None]:
    """Draw in one of matplotlib's styles, or in that of a .mplstyle file, which has the last word."""
    try:
        usual = {**SETTINGS, **more}
        context = pyplot.style.context([usual, style] if style else usual)
        context.__enter__()
    except OSError:
        known = ["default", *pyplot.style.available]
        hint = suggested(style, known) or f"; there are {', '.join(known)}"
        raise InputError(f"--style {style}: is not a style of matplotlib{hint}") from None
    with contextlib.ExitStack() as stack:
        stack.push(context)
        yield


def _size(drawing: Drawing, rows: int, columns: int) -> tuple[float, float]:
    """Return the width and the height in inches."""
    return drawing.size or (13 / 3 * columns, 3.2 * rows)


Offered = Sequence[tuple[PictureRow, Sequence[DrawnLine]]]
Axis = tuple[str, int]


class Panel(NamedTuple):
    """A panel: its figure, its lines, and what it is drawn over."""

    row: PictureRow
    lines: Sequence[DrawnLine]
    over: Axis


def _chosen(offered: Offered, drawing: Drawing) -> list[list[Panel]]:
    """Return the rows of panels that are wanted, of those that a run has.

    Names of both kinds, as `loss` and `bytes`, stand for all panels of these figures over these. A name of
    two, as `loss/bytes`, stands for that panel.
    """
    there = [each for each in offered if any(line.curve for line in each[1])] or list(offered[-1:])
    found = [line.curve for _, lines in there for line in lines if line.curve is not None]
    along = [axis for axis in AXES if any(np.isfinite(each.at[axis[1]]).any() for each in found)]
    along = along or [*AXES[:1]]
    if not drawing.panels:
        return [[Panel(*of, axis) for axis in along] for of in (there if drawing.all_panels else there[:1])]
    kinds = list(dict.fromkeys(row.kind for row, _ in there))
    over = [ALONG[which] for _, which in along]
    wanted = _wanted(drawing.panels, kinds, over)
    rows = [[Panel(*of, axis) for axis in along if (of[0].kind, ALONG[axis[1]]) in wanted] for of in there]
    rows = [row for row in rows if row]
    if len({tuple(panel.over for panel in row) for row in rows}) == 1:
        return rows
    each = sorted((one for row in rows for one in row), key=lambda one: _place(wanted, one))
    named = {tuple(line.called for line in one.lines if line.curve) for one in each}
    return [each] if len(named) == 1 else [[one] for one in each]


def _wanted(panels: Sequence[str], kinds: Sequence[str], over: Sequence[str]) -> list[tuple[str, str]]:
    """Return the figure and the axis of each panel that is named.

    Raises:
        InputError: there is no such figure or axis.
    """
    parts = [panel.split("/") for panel in panels]
    for panel, strange in ((panel, one) for panel, of in zip(panels, parts, strict=True) for one in of):
        if strange not in (*kinds, *over):
            offer = f"they are {', '.join([*kinds, *over])}, or two of them as {kinds[0]}/{over[0]}"
            raise InputError(f"--panel {panel}: '{strange}' is not one of the panels of these runs; {offer}")
    every = [one for of in parts for one in of]
    wanted = []
    for of in parts:
        mine = [[one for one in of if one in names] for names in (kinds, over)]
        alone = [
            [single[0] for single in parts if len(single) == 1 and single[0] in names]
            for names in (kinds, over)
        ]
        named = [[one for one in every if one in names] for names in (kinds, over)]
        figures = mine[0] or alone[0] or named[0] or kinds[:1]
        axes = mine[1] or alone[1] or named[1] or over
        wanted += [(figure, axis) for figure in figures for axis in axes]
    return list(dict.fromkeys(wanted))


def _place(wanted: Sequence[tuple[str, str]], panel: Panel) -> int:
    """Return which of the panels that are named one is."""
    return wanted.index((panel.row.kind, ALONG[panel.over[1]]))


def _panel(axes: Any, panel: Panel, marked: float | None) -> None:
    """Draw one figure of all groups over one of AXES; `marked` is its target."""
    row, lines, (along, which) = panel
    values = [line.curve.mean for line in lines if line.curve is not None]
    scale, levels = charts.levelled(np.concatenate(values).tolist() if values else [], row is LOSS)
    above = lie_above([line.curve for line in lines], which)
    for line, covers in zip(lines, above, strict=True):
        _line(axes, line, which, LINE * (1 + 1.5 * len(covers)), row.scale)
    axes.set(xlabel=along)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if scale.log:
        axes.set_yscale("log")
        axes.set_yticks(levels, [f"{level:g}" for level in levels])
        axes.set_yticks([], minor=True)
    if which == 0:
        axes.xaxis.get_major_locator().set_params(integer=True)
    if marked is not None:
        _mark(axes, marked, f"target {marked:g}{'%' if row.scale > 1 else ''}")


def _mark(axes: Any, target: float, called: str) -> None:
    axes.axhline(target, color="grey", linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(called, (0.01, target), xycoords=axes.get_yaxis_transform(), xytext=(0, 2),
                  textcoords="offset points", color="grey", fontsize="x-small")  # fmt: skip


def _ends(line: DrawnLine) -> Iterator[LineEnd]:
    """Yield where a line ends, if it has a curve."""
    if line.curve is not None:
        yield LineEnd(line.called, line.look.colour, float(line.curve.mean[-1]))


def _line(axes: Any, line: DrawnLine, which: int, width: float, scale: float) -> None:
    if (found := line.curve) is None:
        return
    colour, marker = line.look.colour, "o" if len(found.mean) == 1 else ""
    axes.plot(found.at[which], found.mean, line.look.style, color=colour, label=line.called, marker=marker,
              linewidth=width)  # fmt: skip
    if found.deviation.any():
        axes.fill_between(found.at[which], *found.band(scale), color=colour, alpha=0.15, linewidth=0)
