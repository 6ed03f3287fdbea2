"""Names of lines in a picture by matplotlib: at the lines' ends where there is room, else below; whole."""

from __future__ import annotations

import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpifl.common import InputError

MOST_LINES = 10
"""Lines that have a name at their end."""
LINE = 1.25
"""The height of a line of text, in sizes of its font."""
KEPT = 0.5
"""The share of a picture's width that panels keep beside names."""
LEAST = (0.9, 0.7)
"""The least width and height of a panel, in inches."""
MOST_COLUMNS = 4
"""Columns of names below a picture."""
STEPS = 12
"""How many larger sizes are tried, each by a quarter of the given one."""


class LineEnd(NamedTuple):
    """A line's name, its colour, and the value at which it ends."""

    called: str
    colour: str
    value: float


def put_names(figure: Any, grid: np.ndarray, rows: Sequence[Sequence[LineEnd]], *, grows: bool) -> None:
    """Name the lines of a picture: beside its last panels if these stay wide enough, else below all.

    Args:
        grid: Its panels [rows, columns], with their lines.
        rows: The ends of the lines of each row.
        grows: Whether the picture may become higher for names below it.
    """
    _wrap_labels(figure, grid)
    if max(map(len, rows), default=0) <= MOST_LINES:
        texts = [text for panels, ends in zip(grid, rows, strict=True) for text in _beside(panels[-1], ends)]
        if all(texts) and _kept(figure, grid) >= KEPT:
            return
        for text in filter(None, texts):
            text.remove()
    lines = {str(line.get_label()): line for axes in grid.flat for line in axes.get_lines()}
    put_legend(figure, {name: line for name, line in lines.items() if not name.startswith("_")}, grows=grows)


def put_legend(figure: Any, named: Mapping[str, Any], *, grows: bool) -> None:
    """Write names below a picture, in as many columns as it is wide for; `grows` as for `put_names`."""
    width, height = figure.get_size_inches()
    most = int(72 * width / (0.6 * _points()))
    names = ["\n".join(textwrap.wrap(name, max(8, most - 8))) or name for name in named]
    for columns in range(min(MOST_COLUMNS, len(names)), 0, -1):
        legend = figure.legend(named.values(), names, loc="outside lower center", ncols=columns,
                               frameon=False, fontsize="small", columnspacing=1.2)  # fmt: skip
        for text in legend.get_texts():
            text.set_parse_math(False)  # a name with dollars is no formula
        _laid_out(figure)
        box = legend.get_window_extent()
        if box.width <= figure.bbox.width or columns == 1:
            break
        legend.remove()
    if grows and names:
        figure.set_size_inches(width, height + box.height / figure.dpi)


def check_whole(figure: Any, grid: np.ndarray, option: str, *, grows: bool = False) -> None:
    """See that nothing of a picture is cut, and that its panels have a size to be read.

    Args:
        option: What gave the size, as `--size 3x2`.
        grows: Whether the picture becomes as large as need be.

    Raises:
        InputError: something is cut; the line names a size that would do.
    """
    if _is_whole(figure, grid):
        return
    given = figure.get_size_inches()
    for step in range(1, STEPS + 1):
        figure.set_size_inches(*(given * (1 + step / 4)))
        if _is_whole(figure, grid):
            break
    if grows:
        return
    panels = f"{grid.size} panel{'s' * (grid.size > 1)}"
    fewer = "or fewer by --panel" if grid.size > 1 else "or shorter names by --name SETTING=NAME"
    size = "x".join(f"{inches:.3g}" for inches in figure.get_size_inches())
    raise InputError(f"{option}: is too small for {panels} and the names; use {size}, {fewer}")


@contextmanager
def saying_once(what: str, path: Path, *, tells: bool = True) -> Iterator[None]:
    """Say in one line that names have characters which the font lacks, in place of matplotlib's warnings; or
    nothing, if that was told."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
    if tells and any("Glyph" in str(one.message) for one in told):
        lacks = "the font lacks characters of a name; --style takes a file with another font.family"
        print(f"warning: {what} {path}: {lacks}", file=sys.stderr)


def _laid_out(figure: Any) -> bool:
    """Lay a picture out; return whether there was room."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        figure.draw_without_rendering()
    return not any("constrained_layout" in str(one.message) for one in told)


def _kept(figure: Any, grid: np.ndarray) -> float:
    """Return the share of a picture's width that its panels have; 0 if nothing has room."""
    return sum(axes.get_position().width for axes in grid[0]) if _laid_out(figure) else 0.0


def _is_whole(figure: Any, grid: np.ndarray) -> bool:
    if not _laid_out(figure):
        return False
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    sizes = [(axes.bbox.width / figure.dpi, axes.bbox.height / figure.dpi) for axes in grid.flat]
    inside = min(box.x0, box.y0) > -0.02 and box.x1 < width + 0.02 and box.y1 < height + 0.02
    return inside and all(w >= LEAST[0] and h >= LEAST[1] for w, h in sizes)


def _wrap_labels(figure: Any, grid: np.ndarray) -> None:
    """Break what stands beside panels into lines, where it is longer than these are high."""
    _laid_out(figure)
    for axes in grid.flat:
        label, high = axes.yaxis.label, max(axes.bbox.height, 0.5 * figure.bbox.height / len(grid))
        if (long := label.get_window_extent().height) > high:
            most = int(len(label.get_text()) * high / long)
            label.set_text("\n".join(textwrap.wrap(label.get_text(), max(8, most))))


def _beside(axes: Any, ends: Sequence[LineEnd]) -> Iterator[Any]:
    """Write the names of lines beside a panel, as high as they end, none over another; yield each text, None
    where there is no room."""
    scale = axes.transData + axes.transAxes.inverted()
    axes.autoscale_view()
    high = sorted(((scale.transform((1.0, one.value))[1], one) for one in ends), key=lambda one: -one[0])
    room = 100 * LINE * _points() / 72 / max(axes.bbox.height / axes.figure.dpi, 0.1)
    if len(ends) < 2:
        return
    if room * len(ends) > 100:
        yield None
        return
    tops = apart([100 - 100 * float(min(max(up, 0.0), 1.0)) for up, _ in high], room)
    for top, (_, one) in zip(tops, high, strict=True):
        text = axes.annotate(one.called, (1.02, 1 - top / 100), xycoords="axes fraction", va="center",
                             color=one.colour, fontsize="small", annotation_clip=False)  # fmt: skip
        text.set_parse_math(False)
        yield text


def _points() -> float:
    """Return the size of small text, in points."""
    from matplotlib import font_manager

    return float(font_manager.FontProperties(size="small").get_size_in_points())


def apart(tops: Sequence[float], gap: float) -> list[float]:
    """Return sorted places from 0 to 100, moved as little as need be to lie a gap apart."""
    found = list(tops)
    for nth in range(1, len(found)):
        found[nth] = max(found[nth], found[nth - 1] + gap)
    for nth in range(len(found) - 1, -1, -1):
        found[nth] = min(found[nth], 100 - gap * (len(found) - 1 - nth))
    return found
