"""The figures of a page of a shard folder."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from data_prep.inspect.feature_moments import FeatureMoments
from data_prep.inspect.summary import FolderSummary
from mpifl.common.pages import (
    BLUES,
    DIVERGING,
    GREYS,
    MANY,
    Block,
    Figure,
    Image,
    Key,
    Mark,
    Pictures,
    Place,
    Plot,
    address,
    coloured,
    heat,
    numbered,
    ramp,
)

MOST_KEYS = 12
MOST_FEATURES = 128
MOST_FACES = 24


def labels(summary: FolderSummary, most: float) -> list[Block]:
    """Draw the share of each label in each silo's training set:
    a column a silo, a row a label, the first lowest."""
    shades = summary.shares.T[::-1] / max(most, 1e-9)
    names = [summary.label(number) for number in range(len(shades))][::-1]
    texts = [
        [f"{count:,}" * (count > 0) for count in of_label] for of_label in summary.counts.T[::-1].tolist()
    ]
    drawn = heat(shades, BLUES, "The share of each label in each silo", names, texts=texts)
    return [drawn, ramp("0 %", BLUES, f"{most:.0%} of the silo’s training labels")]


def moments(of_silo: Sequence[FeatureMoments], what: str) -> Plot:
    """Draw the mean of all of a silo's features, or targets, and a deviation up and down;
    nothing of a silo where they are not finite."""
    mean, deviation = np.array([one.overall() for one in of_silo]).T
    finite = np.isfinite(mean) & np.isfinite(deviation)
    low = float((mean - deviation)[finite].min()) if finite.any() else 0.0
    high = float((mean + deviation)[finite].max()) if finite.any() else 0.0
    span = high - low or 1.0
    heights = [100 - 100 * (level - low) / span for level in (mean + deviation, mean, mean - deviation)]
    marks = [
        mark
        for silo, (top, middle, bottom) in enumerate(zip(*heights, strict=True))
        if finite[silo]
        for mark in (
            Mark("area spread", f"M{silo + 0.2:g} {top:.2f}H{silo + 0.8:g}V{bottom:.2f}H{silo + 0.2:g}Z"),
            Mark("area", f"M{silo + 0.1:g} {middle - 1.2:.2f}H{silo + 0.9:g}v2.4H{silo + 0.1:g}Z"),
        )
    ]
    decimals = max(0, 2 - math.floor(math.log10(span)))
    levels = [
        Place(at, f"{level:.{decimals}f}") for at, level in ((0, high), (50, (high + low) / 2), (100, low))
    ]
    return Plot(
        f"Mean and deviation of the {what} of every silo",
        marks,
        (len(mean), 100),
        levels=levels,
        ticks=numbered(len(mean)),
        unit="silo",
        high=110,
    )


def shifts(summary: FolderSummary) -> list[Block]:
    """Draw how far the mean of each feature lies from that of all silos,
    in deviations: red below, blue above."""
    means = np.array([one.mean for one in summary.moments or ()])
    spread = np.array([one.deviation for one in summary.moments or ()])
    deviation = np.sqrt((spread**2).mean(axis=0) + means.var(axis=0))
    apart = (means - means.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    given = summary.spec.feature_names or []
    names = given if len(given) == means.shape[1] else [str(number) for number in range(means.shape[1])]
    drawn = heat(np.clip(apart.T / 4 + 0.5, 0, 1), DIVERGING, "The mean of each feature", names)
    return [drawn, ramp("−2", DIVERGING, "+2 deviations from the mean of all silos")]


def square(found: np.ndarray) -> Plot:
    """Draw a number of each pair of silos, [silos, silos]; the first silo is the lowest row."""
    turned = found.T[::-1]
    texts = [[f"{value:.3f}" for value in row] for row in turned.tolist()]
    names = [str(silo) for silo in range(len(found))][::-1]
    shades = turned / max(float(found.max()), 1e-9)
    return heat(shades, BLUES, "Correlation of each pair of silos", names, texts=texts)


def owners(
    columns: Sequence[Sequence[int]], names: Sequence[str], shape: Sequence[int], title: str
) -> Figure:
    """Draw which silo has which column of an example of a shape: a map of an image's pixels, by the first
    silo that has each, or a row for each silo."""
    width, many = math.prod(shape), len(columns)
    if len(shape) in (2, 3) and min(shape[-2:]) > 1:
        of_column = np.zeros(width)
        for silo in reversed(range(many)):
            of_column[list(columns[silo])] = silo
        pixels = coloured(of_column.reshape(-1, *shape[-2:])[0] / max(many - 1, 1), MANY)
        colours = coloured(np.arange(many) / max(many - 1, 1), MANY).tolist()
        fills = [f"rgb({red},{green},{blue})" for red, green, blue in colours]
        keys = [Key("", name, fill=fill) for name, fill in zip(names, fills, strict=True)]
        image = Image(address(pixels), "Which silo has which pixel")
        return Figure(title, "", [image], keys if many <= MOST_KEYS else ())
    has = np.zeros((many, width))
    for silo, own in enumerate(columns):
        has[silo, list(own)] = 1
    drawn = heat(has, BLUES[:4], "Which silo has which column", [str(n) for n in range(many)], "column")
    return Figure(title, "", [drawn])


def faces(summary: FolderSummary) -> Pictures:
    """Show the mean image of the first silos, and of some more where there are many,
    as grey or colour images."""
    kept = summary.moments or []
    chosen = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), MOST_FACES)).astype(int)).tolist()
    shape = summary.spec.single.shape
    images = np.stack([kept[silo].mean.reshape((1, *shape)[-3:]) for silo in chosen])
    low, high = images.min(), images.max()
    images = (images - low) / (high - low or 1)
    shown = [coloured(one[0], GREYS) if len(one) == 1 else _colour(one) for one in images]
    names = [summary.spec.silos[silo].name for silo in chosen]
    return Pictures([(address(pixels), name) for pixels, name in zip(shown, names, strict=True)])


def strip(shares: np.ndarray, most: float) -> str:
    """Return the address of a row of cells: the labels of one silo."""
    return address(coloured(shares[None] / max(most, 1e-9), BLUES))


def is_image(summary: FolderSummary) -> bool:
    """Tell whether an example is an image [height, width] or [1 or 3,
    height, width] whose means were kept."""
    shape = summary.spec.single.shape
    flat = len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, 3))
    return flat and min(shape[-2:]) > 1 and _kept(summary) == int(np.prod(shape))


def is_table(summary: FolderSummary) -> bool:
    """Tell whether an example is a row of so few features that each has room."""
    return len(summary.spec.single.shape) == 1 and 1 < _kept(summary) <= MOST_FEATURES


def _kept(summary: FolderSummary) -> int:
    return len(summary.moments[0].mean) if summary.moments else 0


def _colour(image: np.ndarray) -> np.ndarray:
    return np.asarray(np.rint(255 * image.transpose(1, 2, 0)), dtype=np.uint8)
