"""Maps of a colour a cell, as images of a pixel a cell, between names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpifl.common.pages.parts import Plot, Ramp
from mpifl.common.pages.png import WORST_TO_BEST, Colours, address, coloured
from mpifl.common.pages.tick_names import across, named, numbered

OUT = (213, 94, 0)
"""The colour of what was left out."""
MOST_CELLS = 12
"""Columns, or rows, whose cells have room for a text."""
DARK = 0.85
"""A shade above which a text is white, on either ground of a page."""


def heat(
    shades: np.ndarray,
    colours: Colours,
    what: str,
    names: Sequence[str],
    unit: str = "silo",
    texts: Sequence[Sequence[str]] = (),
    *,
    along: Sequence[str] = (),
) -> Plot:
    """Draw a map.

    Args:
        shades: The colour of each cell, from 0 to 1, [rows, columns]; the first row is the top one.
        colours: Those of 0 to 1, at even distances.
        what: What is shown.
        names: Of the rows.
        unit: What a column is.
        texts: What the cells say, [rows][columns], if they are few enough.
        along: Names of the columns; without these they are numbered.
    """
    rows, columns = shades.shape
    cells = [
        (100 * (column + 0.5) / columns, 100 * (row + 0.5) / rows, text, bool(shades[row, column] > DARK))
        for row, line in enumerate(texts if max(rows, columns) <= MOST_CELLS else ())
        for column, text in enumerate(line)
    ]
    image, high = address(coloured(shades, colours)), min(max(18 * rows, 60), 560)
    ticks = across(along) if along else numbered(columns)
    return Plot(what, image=image, levels=named(names), lined=False, ticks=ticks, unit=unit,
                cells=cells, high=high)  # fmt: skip


def ramp(low: str, colours: Colours, high: str) -> Ramp:
    """Return what the colours of a map mean."""
    return Ramp(low, address(coloured(np.linspace(0, 1, 64)[None], colours)), high)


def strips(shades: np.ndarray, marked: np.ndarray) -> str:
    """Return an image of a strip a row, [rows, columns], from 0, the worst, to 1: what is `marked` is left
    out, and where there is no number it is clear."""
    pixels = coloured(np.nan_to_num(shades), WORST_TO_BEST)
    pixels[marked] = OUT
    clear = np.isnan(shades) & ~marked
    return address(np.dstack([pixels, np.where(clear, 0, 255).astype(np.uint8)]))
