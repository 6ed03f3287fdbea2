"""The figures of a page of a shard folder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_prep.inspect.feature_moments import FeatureMoments
from data_prep.inspect.summary import FolderSummary
from mpifl.common.pages import BLUES, DIVERGING, Block, Mark, Plot, across, bars, charts, heat, ramp
from mpifl.data.shards import VerticalSpec

MOST_FEATURES, MOST_BARS = 128, 32


def labels(summary: FolderSummary, most: float) -> list[Block]:
    """Draw the share of each label in each silo's training set:
    a column a silo, a row a label, the first lowest."""
    shades = summary.shares.T[::-1] / max(most, 1e-9)
    names = [summary.label(number) for number in range(len(shades))][::-1]
    texts = [
        [f"{count:,}" * (count > 0) for count in of_label] for of_label in summary.counts.T[::-1].tolist()
    ]
    said = "The share of each label in each silo"
    drawn = heat(shades, BLUES, said, names, texts=texts, along=summary.called)
    return [drawn, ramp("0%", BLUES, f"{most:.0%} of the silo’s training labels")]


def moments(of_silo: Sequence[FeatureMoments], what: str, called: Sequence[str]) -> Plot:
    """Draw the mean of all of a silo's features, or targets, and a deviation up and down;
    nothing of a silo where they are not finite. Silos are `called` so."""
    mean, deviation = np.array([one.overall() for one in of_silo]).T
    finite = np.isfinite(mean) & np.isfinite(deviation)
    ends = [0.0] if not finite.any() else [*(mean - deviation)[finite], *(mean + deviation)[finite]]
    levels = charts.ticks(float(min(ends)), float(max(ends)), 3)
    y = charts.Scale(levels[0], levels[-1])
    heights = [
        100 - 100 * (level - y.low) / (y.high - y.low) for level in (mean + deviation, mean, mean - deviation)
    ]
    marks = [
        mark
        for silo, (top, middle, bottom) in enumerate(zip(*heights, strict=True))
        if finite[silo]
        for mark in (
            Mark("area spread", f"M{silo + 0.2:g} {top:.2f}H{silo + 0.8:g}V{bottom:.2f}H{silo + 0.2:g}Z"),
            Mark("area", f"M{silo + 0.1:g} {middle - 1.2:.2f}H{silo + 0.9:g}v2.4H{silo + 0.1:g}Z"),
        )
    ]
    written = charts.beside(y, levels, lambda level: f"{level:.6g}".replace("-", "−"))
    said = f"Mean and deviation of the {what} of every silo"
    return Plot(said, marks, (len(mean), 100), levels=written, ticks=across(called), unit="silo", high=110)


def shifts(summary: FolderSummary) -> list[Block]:
    """Draw how far the mean of each feature lies from that of all silos,
    in deviations: red below, blue above."""
    means = np.array([one.mean for one in summary.moments or ()])
    spread = np.array([one.deviation for one in summary.moments or ()])
    deviation = np.sqrt((spread**2).mean(axis=0) + means.var(axis=0))
    apart = (means - means.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    given = summary.spec.feature_names or []
    names = given if len(given) == means.shape[1] else [str(number) for number in range(means.shape[1])]
    shades, said = np.clip(apart.T / 4 + 0.5, 0, 1), "The mean of each feature"
    drawn = heat(shades, DIVERGING, said, names, along=summary.called)
    return [drawn, ramp("−2", DIVERGING, "+2 deviations from the mean of all silos")]


def owners(spec: VerticalSpec, width: int) -> Plot:
    """Draw which silo has which of an example's `width` columns: a row for each silo."""
    has = np.zeros((len(spec.silos), width))
    for row, entry in zip(has, spec.silos, strict=True):
        row[list(entry.columns)] = 1
    return heat(has, BLUES, "Which silo has which column", [entry.name for entry in spec.silos], "column")


def of_labels(shares: np.ndarray, most: float) -> str:
    """Return a bar for the share of each label of one silo, or the largest of neighbours, as a path."""
    parts = np.array_split(shares / max(most, 1e-9), min(len(shares), MOST_BARS))
    return bars([float(part.max()) for part in parts], charts.WIDE / len(parts), charts.HIGH)


def is_table(summary: FolderSummary) -> bool:
    """Tell whether an example is a row of so few features that each has room."""
    return len(summary.spec.single.shape) == 1 and 1 < _kept(summary) <= MOST_FEATURES


def _kept(summary: FolderSummary) -> int:
    return len(summary.moments[0].mean) if summary.moments else 0
