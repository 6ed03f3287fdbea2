"""A page of a vertical folder."""

from __future__ import annotations

import math

from data_prep.inspect import figures
from data_prep.inspect.advice import section
from data_prep.inspect.column_advice import TITLE, column_advice
from data_prep.inspect.columns_summary import ColumnsSummary
from data_prep.inspect.overview import chosen_rows, first_of
from data_prep.inspect.page import MOST_ROWS, FolderOnPage, document, features, silo_table, sized
from mpifl.common.pages import Block, Cell, Figure, charts

MOST_NAMED = 12
"""Columns of a silo, or runs of them, that the table names."""
MOST_DRAWN = 1 << 22
"""Columns of all silos, had each silo all of them, of which a map is drawn."""
MOST_CLASSES = 1000
"""Classes whose labels are drawn."""


def column_page(columns: ColumnsSummary) -> str:
    """Return the page of a vertical folder."""
    most = int(columns.widths.max())
    body = [*section(TITLE, column_advice(columns)), *_figures(columns, most), _silos(columns, most)]
    told = columns.title, columns.held, columns.measures, body, columns.warnings
    return document(FolderOnPage(columns.spec.name, *told))


def _figures(columns: ColumnsSummary, most: int) -> list[Figure]:
    spec = columns.spec
    called, width = [entry.name for entry in spec.silos], math.prod(spec.features.shape)
    drawn = charts.columns(columns.widths.tolist(), "Columns", most, names=called)
    found = [Figure("Columns", "", [drawn])]
    if len(called) * width <= MOST_DRAWN:
        drawn = figures.owners(spec, width)
        found.append(Figure("Who has which column", "", [drawn]))
    unit = f"class; from the left {first_of(spec.class_names)}" if spec.class_names else "class"
    for entry in spec.silos:
        if entry.labels and len(entry.labels) <= MOST_CLASSES:
            drawn = charts.columns(entry.labels, "Labels", max(entry.labels), unit)
            found.append(Figure(f"Training labels, at {entry.name}", "", [drawn]))
    if columns.moments:
        found.append(features(columns.moments, called))
    return found


def _silos(columns: ColumnsSummary, most: int) -> Block:
    rows = chosen_rows(len(columns.widths), everything=False, most=MOST_ROWS)
    moments = ["mean", "deviation"] if columns.moments else []
    heads = ["silo", "columns", *moments, "targets", "which"]
    return silo_table(heads, [_silo(columns, silo, most) for silo in rows], len(columns.widths) - len(rows))


def _silo(columns: ColumnsSummary, silo: int, most: int) -> list[Cell]:
    entry, named = columns.spec.silos[silo], columns.named(columns.spec.silos[silo])
    moments = columns.moments[silo].overall() if columns.moments else ()
    which = ", ".join(named[:MOST_NAMED]) + ", …" * (len(named) > MOST_NAMED)
    return [
        Cell(entry.name),
        sized(len(entry.columns), most),
        *(Cell(f"{figure:.4g}") for figure in moments),
        Cell(columns.learned(entry)),
        Cell(which, look="text"),
    ]
