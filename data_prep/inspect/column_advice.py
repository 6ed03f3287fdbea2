"""Which settings the columns of a vertical folder suggest before a training.

The bounds are rules of thumb: try a few rounds before you decide.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data_prep.inspect.advice import LARGE, UNEVEN, Advice, Take
from data_prep.inspect.columns_summary import ColumnsSummary
from data_prep.inspect.heterogeneity import gini
from mpifl.data.shards import VerticalEntry

FEW_ROWS, MANY_EXCHANGES = 10, 500
"""Rows of a batch unless a job says otherwise, and exchanges of an epoch from which on larger batches pay."""
BATCH = 256
"""Rows of a batch that make an exchange worth its time."""
RARE = 0.1
"""A share of the rows below which a class is rare."""
TITLE = "What the columns suggest"

SPLIT = Take(
    ('[algorithm] name = "splitnn"',),
    "silos have the same rows and other columns, so models cannot be averaged; [split] cut_width is how many "
    "numbers a silo sends for each row",
)
REPEATED = Take(
    (f"[local] batch_size = {BATCH}", "[algorithm] local_steps = 5"),
    "each batch costs a message from every silo and one back; tune local.lr for each, and compare",
)
OWN_WIDTHS = Take(
    ("a list as [split] cut_width",),
    'a silo with few columns needs few numbers; merge = "concat" takes unequal widths, and [split] bottoms.K '
    "gives silo K a model of its own",
)
HIDDEN = Take(
    ('[split] protect = "label-dp"', 'protect = "max-norm"'),
    "label-dp gives a guarantee, by epsilon; max-norm hides only the lengths; norm_leak_auc of each round "
    "says how well they rank the labels",
)
SCALED = Take(
    ("data-prep fit",),
    "each silo standardises its own columns before rows are aligned; otherwise its steps are too long",
)
AGAIN = Take(("partition or align again",), "row 17 at one silo is another person than row 17 at the other")


def column_advice(columns: ColumnsSummary) -> list[Advice]:
    """Return what the figures of a vertical folder suggest; of one silo nothing."""
    if len(columns.widths) < 2:
        return []
    return [*_aligned(columns), *_network(columns), *_lines(columns), *_labels(columns), *_scales(columns)]


def _aligned(columns: ColumnsSummary) -> Iterator[Advice]:
    first, *others = columns.spec.silos
    for other in others:
        if other.alignment != first.alignment:
            what = f"{other.name} and {first.name} come from different alignments"
            yield Advice(f"{what}, so the orders of their rows differ", AGAIN)


def _network(columns: ColumnsSummary) -> Iterator[Advice]:
    """Say which algorithm there is, whose rank is the first, and what an epoch costs."""
    rows = columns.spec.rows["train"]
    for holder in _holders(columns):
        what = f"{holder.name} holds the labels: it has the top model beside its own columns"
        yield Advice(what, SPLIT)
    exchanges = -(-rows // FEW_ROWS)
    if exchanges >= MANY_EXCHANGES:
        what = f"With the default batch size, {FEW_ROWS}, an epoch is {exchanges:,} exchanges"
        yield Advice(what, REPEATED)


def _lines(columns: ColumnsSummary) -> Iterator[Advice]:
    widths = columns.widths
    if gini(widths) >= UNEVEN:
        what = f"Columns are spread unevenly: {widths.min():,} at one silo, {widths.max():,} at another"
        yield Advice(what, OWN_WIDTHS)


def _labels(columns: ColumnsSummary) -> Iterator[Advice]:
    """Warn of gradients that tell labels, where these are two classes."""
    for holder in _holders(columns):
        counts = np.array(holder.labels or [])
        if len(counts) == 2 and counts.any():
            share = counts.min() / counts.sum()
            rare = f", and one is rare ({share:.0%})" if share < RARE else ""
            what = f"With two classes{rare}, the lengths of gradients reveal labels to the other silos"
            yield Advice(what, HIDDEN)


def _scales(columns: ColumnsSummary) -> Iterator[Advice]:
    for entry, moments in zip(columns.spec.silos, columns.moments or (), strict=False):
        mean, deviation = moments.overall()
        if max(abs(mean), deviation) >= LARGE:
            yield Advice(f"Columns of {entry.name} are far from 0 ± 1: {mean:.4g} ± {deviation:.4g}", SCALED)


def _holders(columns: ColumnsSummary) -> list[VerticalEntry]:
    return [entry for entry in columns.spec.silos if entry.labels is not None]
