"""The figures of a page: text in HTML, that stays readable at any width, around marks that stretch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from data_prep.inspect.features import Moments
from data_prep.inspect.png import BLUES, DIVERGING, GREYS, MANY, address, coloured
from data_prep.inspect.summary import Summary

MOST_CELLS = 12  # silos, or classes, whose cells have room for a figure
MOST_LABELS = 30  # of classes or features beside their rows
MOST_FEATURES = 128
MOST_FACES = 24


def sizes(of_silo: np.ndarray, most: int, what: str = "Training examples") -> str:
    """Draw a number of every silo, its training examples, as bars; one of `most` has the full height."""
    gap = 0.15 if len(of_silo) <= 150 else 0.0
    path = "".join(
        f"M{silo + gap:g} 100V{100 - 100 * size / most:.2f}H{silo + 1 - gap:g}V100Z"
        for silo, size in enumerate(of_silo.tolist())
    )
    bars = (
        f'<svg class="bars" viewBox="0 0 {len(of_silo)} 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{what} of every silo, '
        f'{of_silo.min():,} to {of_silo.max():,}"><path d="{path}"/></svg>'
    )
    return _framed([f"{most:,}", f"{most // 2:,}", "0"], bars, "between")


def labels(summary: Summary, most: float) -> str:
    """Draw the share of each label in each silo's training set:
    a column a silo, a row a label, the first lowest."""
    shares = summary.shares
    names = [summary.label(number) for number in range(shares.shape[1])]
    image = _image(
        coloured(shares.T[::-1] / max(most, 1e-9), BLUES), "The share of each label in each silo", len(names)
    )
    texts = [[f"{count:,}" * (count > 0) for count in of_silo] for of_silo in summary.counts.tolist()]
    figures = _cells(texts, shares / max(most, 1e-9)) if max(shares.shape) <= MOST_CELLS else ""
    return _framed(_beside(names)[::-1], f'<div class="stack">{image}{figures}</div>') + axis(len(shares))


def legend(most: float) -> str:
    """Draw what the colours of `labels` mean."""
    ramp = address(coloured(np.linspace(0, 1, 64)[None], BLUES))
    return f'<div class="legend">0 %<img src="{ramp}" alt="">{most:.0%} of the silo’s training labels</div>'


def moments(of_silo: Sequence[Moments], what: str) -> str:
    """Draw the mean of all of a silo's features, or targets, and a deviation up and down;
    nothing of a silo where they are not finite."""
    mean, deviation = np.array([one.overall() for one in of_silo]).T
    finite = np.isfinite(mean) & np.isfinite(deviation)
    low, high = _extent(mean[finite], deviation[finite])
    span = high - low or 1.0
    heights = [100 - 100 * (level - low) / span for level in (mean + deviation, mean, mean - deviation)]
    marks = "".join(
        f'<path class="spread" d="M{silo + 0.2:g} {top:.2f}H{silo + 0.8:g}V{bottom:.2f}H{silo + 0.2:g}Z"/>'
        f'<path class="mean" d="M{silo + 0.1:g} '
        f'{middle - 1.2:.2f}H{silo + 0.9:g}V{middle + 1.2:.2f}H{silo + 0.1:g}Z"/>'
        for silo, (top, middle, bottom) in enumerate(zip(*heights, strict=True))
        if finite[silo]
    )
    drawing = (
        f'<svg class="bars" viewBox="0 0 {len(mean)} 100" preserveAspectRatio="none" role="img" '
        f'aria-label="Mean and deviation of the {what} of every silo">{marks}</svg>'
    )
    decimals = max(0, 2 - math.floor(math.log10(span)))
    ticks = [f"{level:.{decimals}f}" for level in (high, (high + low) / 2, low)]
    return _framed(ticks, drawing, "between") + axis(len(mean))


def _extent(mean: np.ndarray, deviation: np.ndarray) -> tuple[float, float]:
    """Return the lowest and the highest of what lies a deviation off; 0 and 0 of nothing."""
    return (float((mean - deviation).min()), float((mean + deviation).max())) if len(mean) else (0.0, 0.0)


def shifts(summary: Summary) -> str:
    """Draw how far the mean of each feature lies from that of all silos,
    in deviations: red below, blue above."""
    means = np.array([one.mean for one in summary.moments or ()])
    spread = np.array([one.deviation for one in summary.moments or ()])
    deviation = np.sqrt((spread**2).mean(axis=0) + means.var(axis=0))
    apart = (means - means.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    given = summary.spec.feature_names or []
    names = given if len(given) == means.shape[1] else [str(number) for number in range(means.shape[1])]
    image = _image(
        coloured(np.clip(apart.T / 4 + 0.5, 0, 1), DIVERGING), "The mean of each feature", len(names)
    )
    ramp = address(coloured(np.linspace(0, 1, 64)[None], DIVERGING))
    key = f'<div class="legend">−2<img src="{ramp}" alt="">+2 deviations from the mean of all silos</div>'
    return _framed(_beside(names), f'<div class="stack">{image}</div>') + axis(len(means)) + key


def square(found: np.ndarray) -> str:
    """Draw a number of each pair of silos, [silos, silos]; the first silo is the lowest row."""
    shares = found / max(float(found.max()), 1e-9)
    image = _image(coloured(shares.T[::-1], BLUES), "A number of each pair of silos", len(found))
    texts = [[f"{value:.3f}" for value in row] for row in found.tolist()]
    cells = _cells(texts, shares) if len(found) <= MOST_CELLS else ""
    numbers = [str(silo) for silo in range(len(found))]
    return _framed(_beside(numbers)[::-1], f'<div class="stack">{image}{cells}</div>') + axis(len(found))


def owners(columns: Sequence[Sequence[int]], names: Sequence[str], shape: Sequence[int]) -> str:
    """Draw which silo has which column of an example of a shape: a map of an image's pixels, by the first
    silo that has each, or a row for each silo."""
    width = math.prod(shape)
    if len(shape) in (2, 3) and min(shape[-2:]) > 1:
        of_column = np.zeros(width)
        for silo in reversed(range(len(columns))):
            of_column[list(columns[silo])] = silo
        pixels = coloured(of_column.reshape(-1, *shape[-2:])[0] / max(len(columns) - 1, 1), MANY)
        key = "".join(
            f'<span><i style="background:rgb{tuple(colour)}"></i>{escape(name)}</span>'
            for name, colour in zip(names, _keys(len(columns)), strict=True)
        )
        image = f'<img class="map" src="{address(pixels)}" alt="Which silo has which pixel">'
        return f'{image}<div class="keys">{key if len(columns) <= MOST_CELLS else ""}</div>'
    has = np.zeros((len(columns), width))
    for silo, own in enumerate(columns):
        has[silo, list(own)] = 1
    image = _image(coloured(has, BLUES[:4]), "Which silo has which column", min(len(columns), MOST_LABELS))
    numbers = [str(silo) for silo in range(len(columns))]
    return _framed(_beside(numbers), f'<div class="stack">{image}</div>') + axis(width, "column")


def _keys(silos: int) -> list[list[int]]:
    """Return the colours of silos on a map."""
    found: list[list[int]] = coloured(np.arange(silos) / max(silos - 1, 1), MANY).tolist()
    return found


def faces(summary: Summary) -> str:
    """Show the mean image of the first silos, and of some more where there are many,
    as grey or colour images."""
    kept = summary.moments or []
    chosen = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), MOST_FACES)).astype(int)).tolist()
    images = np.stack([_picture(kept[silo].mean, summary.spec.single.shape) for silo in chosen])
    low, high = images.min(), images.max()
    images = (images - low) / (high - low or 1)
    shown = [coloured(one[0], GREYS) if len(one) == 1 else _colour(one) for one in images]
    return '<div class="faces">' + "".join(
        f'<figure><img src="{address(pixels)}" '
        f'alt=""><figcaption>{escape(summary.spec.silos[silo].name)}</figcaption>'
        "</figure>"
        for silo, pixels in zip(chosen, shown, strict=True)
    ) + "</div>"  # fmt: skip


def strip(shares: np.ndarray, most: float) -> str:
    """Draw the labels of one silo as a row of cells."""
    return f'<img class="strip" src="{address(coloured(shares[None] / max(most, 1e-9), BLUES))}" alt="">'


def is_image(summary: Summary) -> bool:
    """Tell whether an example is an image [height, width] or [1 or 3,
    height, width] whose means were kept."""
    shape = summary.spec.single.shape
    flat = len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, 3))
    return flat and min(shape[-2:]) > 1 and _kept(summary) == int(np.prod(shape))


def is_table(summary: Summary) -> bool:
    """Tell whether an example is a row of so few features that each has room."""
    return len(summary.spec.single.shape) == 1 and 1 < _kept(summary) <= MOST_FEATURES


def _kept(summary: Summary) -> int:
    return len(summary.moments[0].mean) if summary.moments else 0


def _picture(mean: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    return mean.reshape(shape if len(shape) == 3 else (1, *shape))


def _colour(image: np.ndarray) -> np.ndarray:
    return np.asarray(np.rint(255 * image.transpose(1, 2, 0)), dtype=np.uint8)


def _image(pixels: np.ndarray, text: str, rows: int) -> str:
    height = min(max(18 * rows, 60), 560)
    return f'<img class="heat" style="height:{height}px" src="{address(pixels)}" alt="{escape(text)}">'


def _beside(names: Sequence[str]) -> list[str]:
    """Return the names of rows, or every so manieth where there are too many."""
    step = -(-len(names) // MOST_LABELS)
    return [name if number % step == 0 else "" for number, name in enumerate(names)]


def _framed(ticks: Sequence[str], drawing: str, spread: str = "") -> str:
    beside = "".join(f"<span>{escape(tick)}</span>" for tick in ticks)
    return (
        f'<div class="framed"><div class="ticks {spread}">{beside}</div><div '
        f'class="drawn">{drawing}</div></div>'
    )


def axis(silos: int, unit: str = "silo") -> str:
    """Number the silos below a figure, by about eight of them."""
    step = next(
        step
        for step in (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 10**3, 10**4, 10**6)
        if silos / step <= 13
    )
    marks = "".join(
        f'<span style="left:{100 * (silo + 0.5) / silos:.2f}%">{silo}</span>'
        for silo in range(0, silos, step)
    )
    return (
        '<div class="framed"><div class="ticks"></div><div '
        f'class="axis">{marks}</div></div><p class="unit">{unit}</p>'
    )


def _cells(texts: Sequence[Sequence[str]], shares: np.ndarray) -> str:
    """Write texts [silos, rows] into the cells, the first row lowest, in white where the cell is dark."""
    cells = "".join(
        f"<span{' class=dark' if shares[silo, row] > 0.5 else ''}>{texts[silo][row]}</span>"
        for row in reversed(range(shares.shape[1]))
        for silo in range(len(shares))
    )
    return f'<div class="cells" style="grid-template-columns:repeat({len(shares)},1fr)">{cells}</div>'
