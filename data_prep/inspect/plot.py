"""A picture of shard folders: the size of every silo above a heat map of its labels,
and of its features below."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.inspect.columns_summary import ColumnsSummary
from data_prep.inspect.feature_moments import FeatureMoments
from data_prep.inspect.overview import counted
from data_prep.inspect.summary import FolderSummary, worded
from mpifl.common import InputError, write_atomic
from mpifl.common.machine import floors
from mpifl.data.shards import FederationSpec, VerticalSpec

FORMATS = (".png", ".pdf", ".svg")
MOST_ANNOTATED = 12  # silos, or classes, whose cells still have room for a figure
MOST_BARS = 150  # with a gap between them; beyond, a filled outline
BLUE, PALE, GREY = "#2f6690", "#9dbcd4", "#444444"


def draw(summaries: Sequence[FolderSummary], path: Path) -> None:
    """Draw one folder, or two side by side; the file's ending says the format.

    Raises:
        InputError: another ending, a folder that cannot be written to, or matplotlib is not installed.
    """
    _check_ending(path)
    _save(_figure(summaries), path)


def draw_columns(folders: Sequence[ColumnsSummary], path: Path) -> None:
    """Draw one vertical folder, or two side by side: the columns of every silo, and their correlations;
    raise InputError as `draw` does."""
    _check_ending(path)
    shown = [one.correlated is not None for one in folders]
    silos = max(len(one.widths) for one in folders)
    width = np.clip(3 + 0.7 * silos, 6, 12 / len(folders) ** 0.5)
    heights = [1.4, 0.8 * width][: 1 + any(shown)]
    figure = _empty_figure(width * len(folders), sum(heights) + 1)
    grid = figure.subplots(len(heights), len(folders), height_ratios=heights, squeeze=False)
    most = max([float(one.correlated.max()) for one in folders if one.correlated is not None], default=1.0)
    for column, one in zip(grid.T, folders, strict=True):
        column[0].set_title(_title(one.spec), fontsize=11 if len(folders) == 1 else 9)
        column[0].xaxis.get_major_locator().set_params(integer=True)
        _draw_sizes(column[0], one.widths, "columns")
        for axes in column[1:]:
            _draw_correlations(figure, axes, one.correlated, most or 1.0)
        column[-1].set_xlabel("silo")
    _save(figure, path)


def _check_ending(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"--plot: {path} ends in '{path.suffix}'; it must be one of {', '.join(FORMATS)}")


def _save(figure: Any, path: Path) -> None:
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix[1:].lower(), dpi=150)
    try:
        write_atomic(path, picture.getvalue())
    except OSError as error:
        raise InputError(f"--plot: {path} cannot be written ({error.strerror}); name another") from None


def _figure(summaries: Sequence[FolderSummary]) -> Any:
    """Lay out a column of panels a folder, as wide and high as silos and classes need and a page allows."""
    silos, classes = (max(lengths) for lengths in zip(*(one.counts.shape for one in summaries), strict=True))
    width, height = np.clip(3 + 0.7 * silos, 7, 12 / len(summaries) ** 0.5), np.clip(0.32 * classes, 1.6, 7)
    panels = _panels(summaries)
    heights = [1.4, *(height if what == "labels" else 1.4 for what, _ in panels)]
    figure = _empty_figure(width * len(summaries), sum(heights) + 1)
    grid = figure.subplots(len(heights), len(summaries), sharex="col", height_ratios=heights, squeeze=False)
    most = max(one.darkest for one in summaries)
    grid[0, 0].sharey(grid[0, -1])
    for column, summary in zip(grid.T, summaries, strict=True):
        column[0].set_title(_title(summary.spec), fontsize=11 if len(summaries) == 1 else 9)
        column[0].xaxis.get_major_locator().set_params(
            integer=True
        )  # silos have no halves; all panels share it
        _draw_sizes(column[0], summary.sizes)
        for axes, (what, name) in zip(column[1:], panels, strict=True):
            of_silo = summary.drawn_targets().get(name) if what == "targets" else summary.moments
            if what == "labels" and summary.labelled:
                _draw_labels(figure, axes, summary, most)
            elif what != "labels" and of_silo:
                _draw_moments(axes, of_silo, name)
            else:
                axes.set_axis_off()
        column[-1].set_xlabel("silo")
    return figure


def _empty_figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure  # pyplot would look for a display
    except ImportError:
        raise InputError("--plot: needs matplotlib; pip install 'mpifl[plots]'") from None
    floors.hold("plots")
    return Figure(figsize=(width, height), layout="constrained")


def _panels(summaries: Sequence[FolderSummary]) -> list[tuple[str, str]]:
    """Return what is drawn below the sizes: labels and targets by name where a folder has them,
    features where all have."""
    labels = [("labels", "labels")] * any(one.labelled for one in summaries)
    targets = dict.fromkeys(("targets", name) for one in summaries for name in one.drawn_targets())
    return [*labels, *targets, *[("features", "features")] * all(one.moments for one in summaries)]


def _title(spec: FederationSpec | VerticalSpec) -> str:
    options = ", ".join(f"{key} = {worded(value)}" for key, value in spec.scheme.items() if key != "name")
    name = spec.name if len(spec.name) <= 60 else f"{spec.name[:59]}…"
    # a name is anybody's text: a dollar sign in it must not start a formula
    return f"{name}: {counted(spec)}\n({options})".replace("$", r"\$")


def _draw_sizes(axes: Any, sizes: np.ndarray, what: str = "training\nexamples") -> None:
    if len(sizes) > MOST_BARS:
        axes.stairs(sizes, np.arange(len(sizes) + 1) - 0.5, fill=True, color=BLUE)
    else:
        bars = axes.bar(np.arange(len(sizes)), sizes, color=BLUE)
    if len(sizes) <= MOST_ANNOTATED:
        axes.bar_label(bars, [f"{size:,}" for size in sizes], fontsize=8, color=GREY, padding=2)
        axes.margins(y=0.25)
    axes.set_ylabel(what)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.get_major_locator().set_params(nbins=4, integer=True)
    axes.tick_params(axis="x", length=0, labelbottom=False)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_correlations(figure: Any, axes: Any, found: np.ndarray | None, most: float) -> None:
    """Draw Pcor of every pair of silos, where shards were read."""
    if found is None:
        axes.set_axis_off()
        return
    image = axes.imshow(found, cmap="Blues", vmin=0, vmax=most, interpolation="nearest", origin="lower")
    figure.colorbar(image, ax=axes, pad=0.01, label="Pcor")
    axes.set_ylabel("silo")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    if len(found) <= MOST_ANNOTATED:
        for i, j in np.ndindex(found.shape):
            colour = "white" if found[i, j] > most / 2 else GREY
            axes.text(j, i, f"{found[i, j]:.3f}", ha="center", va="center", fontsize=8, color=colour)


def _draw_labels(figure: Any, axes: Any, summary: FolderSummary, most: float) -> None:
    counts, shares = summary.counts, summary.shares
    image = axes.imshow(
        shares.T, aspect="auto", cmap="Blues", vmin=0, vmax=most, interpolation="nearest", origin="lower"
    )
    figure.colorbar(image, ax=axes, pad=0.01, label="share of the silo", format=lambda v, _: f"{v:.0%}")
    axes.set(ylabel="label", xlim=(-0.5, len(counts) - 0.5))
    _number_cells(axes, summary, *counts.shape)
    if max(counts.shape) <= MOST_ANNOTATED:
        _annotate(axes, counts, shares / most)


def _number_cells(axes: Any, summary: FolderSummary, silos: int, classes: int) -> None:
    """Number silos and classes by whole numbers, or name the classes, where there is room for all."""
    for axis, length in ((axes.xaxis, silos), (axes.yaxis, classes)):
        axis.get_major_locator().set_params(integer=True)
        if length <= 2 * MOST_ANNOTATED:
            axis.set_ticks(range(length))
    if summary.spec.class_names and classes <= 2 * MOST_ANNOTATED:
        names = [summary.label(number).replace("$", r"\$") for number in range(classes)]
        axes.set_yticks(range(classes), names)


def _draw_moments(axes: Any, of_silo: Sequence[FeatureMoments], name: str) -> None:
    """Draw the mean of all of a silo's features, or of a target, a deviation up and down."""
    mean, deviation = np.array([one.overall() for one in of_silo]).T
    at = np.arange(len(mean))
    if len(mean) > MOST_BARS:
        axes.fill_between(at, mean - deviation, mean + deviation, color=PALE, linewidth=0)
        axes.plot(at, mean, color=BLUE, linewidth=1)
    else:
        axes.errorbar(at, mean, deviation, fmt="o", color=BLUE, ecolor=PALE, markersize=3, linewidth=1)
    axes.set_ylabel(f"{name},\nmean ± sd".replace("$", r"\$"))
    axes.spines[["top", "right"]].set_visible(False)


def _annotate(axes: Any, counts: np.ndarray, shares: np.ndarray) -> None:
    """Write the counts into the cells, in white where the cell is dark."""
    for silo, label in np.argwhere(counts):
        colour = "white" if shares[silo, label] > 0.5 else GREY
        axes.text(silo, label, f"{counts[silo, label]:,}", ha="center", va="center", fontsize=8, color=colour)
