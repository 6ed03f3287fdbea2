"""A page of one vertical folder, or of two side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from data_prep.inspect import column_advice, figures
from data_prep.inspect.columns import Columns, compared_columns
from data_prep.inspect.overview import chosen_rows, first_of
from data_prep.inspect.page import MOST_ROWS, Part, document, drawn, silo_table, sized
from mpifl.data.shards import VerticalEntry

MOST_NAMED = 12
"""Columns of a silo, or runs of them, that the table names."""
MOST_DRAWN = 1 << 22
"""Columns of all silos, had each silo all of them, of which a map is drawn."""
MOST_CLASSES = 1000
"""Classes whose labels are drawn."""


def column_page(folders: Sequence[Columns]) -> str:
    """Return the page of one vertical folder or two."""
    most = max(int(one.widths.max()) for one in folders)
    parts = [Part(one.spec.name, one.title, one.held, one.measures, _body(one, most)) for one in folders]
    return document(parts, compared_columns(*folders) if len(folders) == 2 else [])


def _body(columns: Columns, most: int) -> str:
    return column_advice.section(columns) + _figures(columns, most) + _silos(columns, most)


def _figures(columns: Columns, most: int) -> str:
    spec = columns.spec
    names = [entry.name for entry in spec.silos]
    shape = spec.features.shape
    own = [entry.columns for entry in spec.silos]
    found = [
        ("Columns", figures.sizes(columns.widths, most, "Columns") + figures.axis(len(own))),
    ]
    if len(own) * math.prod(shape) <= MOST_DRAWN:
        found.append(("Who has which column", figures.owners(own, names, shape)))
    found += [
        (f"Training labels, at {escape(entry.name)}", _labels(columns, entry))
        for entry in spec.silos
        if entry.labels and len(entry.labels) <= MOST_CLASSES
    ]
    if columns.correlated is not None:
        drawing = figures.square(columns.correlated)
        found.append(("Correlation of the silos’ columns (Pcor)", drawing))
    if columns.moments:
        drawing = figures.moments(columns.moments, "features")
        found.append(("Features: mean ± deviation, as a model sees them", drawing))
    return drawn(found)


def _labels(columns: Columns, entry: VerticalEntry) -> str:
    counts = np.array(entry.labels)
    names = columns.spec.class_names
    unit = f"class; from the left {escape(first_of(names))}" if names else "class"
    return figures.sizes(counts, int(counts.max()) or 1, "Labels") + figures.axis(len(counts), unit)


def _silos(columns: Columns, most: int) -> str:
    rows = chosen_rows(len(columns.widths), everything=False, most=MOST_ROWS)
    moments = "<th>mean</th><th>deviation</th>" if columns.moments else ""
    heading = f'<th>silo</th><th>columns</th>{moments}<th>targets</th><th class="left">which</th>'
    body = [_silo(columns, silo, most) for silo in rows]
    return silo_table(heading, body, len(columns.widths) - len(rows))


def _silo(columns: Columns, silo: int, most: int) -> str:
    entry, named = columns.spec.silos[silo], columns.named(columns.spec.silos[silo])
    moments = columns.moments[silo].overall() if columns.moments else ()
    which = ", ".join(named[:MOST_NAMED]) + ", …" * (len(named) > MOST_NAMED)
    cells = [
        f"<th>{escape(entry.name)}</th>",
        sized(len(entry.columns), most),
        *(f"<td>{figure:.4g}</td>" for figure in moments),
        f"<td>{escape(columns.learned(entry))}</td>",
        f'<td class="names">{escape(which)}</td>',
    ]
    return "<tr>" + "".join(cells) + "</tr>"
