"""A picture of a shard folder: the size of every silo above a heat map of its labels."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.overview import counted, label_counts
from mpifl.errors import InputError
from mpifl.files import write_aside
from mpifl.shards import FederationSpec

FORMATS = (".png", ".pdf", ".svg")
MOST_ANNOTATED = 12  # silos, or classes, whose cells still have room for a figure
MOST_BARS = 150  # with a gap between them; beyond, a filled outline
BLUE, GREY = "#2f6690", "#444444"


def draw(spec: FederationSpec, path: Path) -> None:
    """Draw silo sizes and the share of each label in each silo's training set; the file's ending says the format.

    Raises:
        InputError: another ending, a folder that cannot be written to, or matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"--plot: {path} ends in '{path.suffix}'; it must be one of {', '.join(FORMATS)}")
    picture = io.BytesIO()
    _figure(spec, label_counts(spec)).savefig(picture, format=path.suffix[1:].lower(), dpi=150)
    try:
        write_aside(path, picture.getvalue())
    except OSError as error:
        raise InputError(f"--plot: {path} cannot be written ({error.strerror}); name another") from None


def _figure(spec: FederationSpec, counts: np.ndarray) -> Any:
    """Lay out the two panels, as wide and high as silos and classes need and a page allows."""
    try:
        from matplotlib.figure import Figure  # pyplot would look for a display
    except ImportError:
        raise InputError("--plot: needs matplotlib; pip install 'mpifl[plots]'") from None
    silos, classes = counts.shape
    width, height = np.clip(3 + 0.7 * silos, 7, 12), np.clip(0.32 * classes, 1.6, 7)
    figure = Figure(figsize=(width, height + 2.4), layout="constrained")
    sizes, labels = figure.subplots(2, 1, sharex=True, height_ratios=[1.4, height])
    figure.suptitle(_title(spec), fontsize=11)
    _draw_sizes(sizes, counts.sum(axis=1))
    _draw_labels(figure, labels, counts)
    return figure


def _title(spec: FederationSpec) -> str:
    options = ", ".join(f"{key} = {value}" for key, value in spec.scheme.items() if key != "name")
    name = spec.name if len(spec.name) <= 60 else f"{spec.name[:59]}…"
    # a name is anybody's text: a dollar sign in it must not start a formula
    return f"{name}: {counted(spec)} ({options})".replace("$", r"\$")


def _draw_sizes(axes: Any, sizes: np.ndarray) -> None:
    if len(sizes) > MOST_BARS:
        axes.stairs(sizes, np.arange(len(sizes) + 1) - 0.5, fill=True, color=BLUE)
    else:
        bars = axes.bar(np.arange(len(sizes)), sizes, color=BLUE)
    if len(sizes) <= MOST_ANNOTATED:
        axes.bar_label(bars, [f"{size:,}" for size in sizes], fontsize=8, color=GREY, padding=2)
        axes.margins(y=0.25)
    axes.set_ylabel("training\nexamples")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.get_major_locator().set_params(nbins=4, integer=True)
    axes.tick_params(axis="x", length=0, labelbottom=False)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_labels(figure: Any, axes: Any, counts: np.ndarray) -> None:
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares.T, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest", origin="lower")
    figure.colorbar(image, ax=axes, pad=0.01, label="share of the silo", format=lambda value, _: f"{value:.0%}")
    axes.set(xlabel="silo", ylabel="label", xlim=(-0.5, len(counts) - 0.5))
    for axis, length in ((axes.xaxis, counts.shape[0]), (axes.yaxis, counts.shape[1])):
        axis.get_major_locator().set_params(integer=True)
        if length <= 2 * MOST_ANNOTATED:
            axis.set_ticks(range(length))
    if max(counts.shape) <= MOST_ANNOTATED:
        _annotate(axes, counts, shares)


def _annotate(axes: Any, counts: np.ndarray, shares: np.ndarray) -> None:
    """Write the counts into the cells, in white where the cell is dark."""
    for silo, label in np.argwhere(counts):
        colour = "white" if shares[silo, label] > 0.5 * shares.max() else GREY
        axes.text(silo, label, f"{counts[silo, label]:,}", ha="center", va="center", fontsize=8, color=colour)
