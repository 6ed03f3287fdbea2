"""A page of one shard folder: one HTML file, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data_prep.inspect import figures
from data_prep.inspect.advice import advice, section
from data_prep.inspect.feature_moments import FeatureMoments
from data_prep.inspect.overview import chosen_rows, grouped, totals
from data_prep.inspect.summary import FEATURE_HEADS, FolderSummary, Measure
from mpifl.common.pages import Block, Cell, Figure, Fold, Said, Table, charts, render
from mpifl.data.shards import SPLITS

MOST_ROWS = 200
MOST_TARGETS = 24
MOST_OPEN = 30
"""Rows of a table that is open from the start."""
PLAIN = ("target", "targets")
"""Names of targets that have none of their own."""


class Most(NamedTuple):
    """What has the full height, or the darkest colour."""

    examples: int
    share: float


class FolderOnPage(NamedTuple):
    """A folder on its page: its name, what was cut and how, what is held, how much silos differ, figures, and
    what is doubtful."""

    name: str
    title: str
    held: str
    measures: Sequence[Measure]
    blocks: Sequence[Block]
    warnings: Sequence[str]


def page(summary: FolderSummary) -> str:
    """Return the page of a folder."""
    most = Most(int(summary.sizes.max()), summary.darkest)
    held = ". ".join(filter(None, (totals(summary.spec), grouped(summary.spec))))
    body = _folder(summary, most)
    return document(
        FolderOnPage(summary.spec.name, summary.title, held, summary.measures, body, summary.warnings)
    )


def document(part: FolderOnPage) -> str:
    """Return a page."""
    return render("inspect.html", title=part.name, every=None, broad=False, part=part)


def _folder(summary: FolderSummary, most: Most) -> list[Block]:
    """Return the figures of one folder and the table of its silos."""
    sizes = charts.columns(summary.sizes.tolist(), "Training examples", most.examples, names=summary.called)
    found: list[Block] = [Figure("Training examples", "", [sizes])]
    if summary.labelled:
        found.append(Figure("Training labels", "", figures.labels(summary, most.share)))
    for name, of_silo in summary.drawn_targets().items():
        title = "Targets" if name in PLAIN else f"Target {name}"
        found.append(
            Figure(f"{title}: mean ± deviation", "", [figures.moments(of_silo, name, summary.called)])
        )
    if summary.moments and summary.of_one_kind:
        found.append(features(summary.moments, summary.called))
    if summary.moments and figures.is_table(summary):
        found.append(Figure("Features, one by one", "", figures.shifts(summary)))
    if rows := summary.feature_rows():
        chosen = [rows[at] for at in chosen_rows(len(rows), everything=False, most=MOST_ROWS)]
        table = Table(FEATURE_HEADS, [[*map(Cell, row)] for row in chosen])
        found.append(Fold("Every feature", [table], opened=len(chosen) <= MOST_OPEN))
    advised = section("What is skewed, and what that suggests", advice(summary))
    return [*advised, *found, _silos(summary, most)]


def features(moments: Sequence[FeatureMoments], called: Sequence[str]) -> Figure:
    """Return the figure of the features of every silo."""
    title = "Features: mean ± deviation, as a model sees them"
    return Figure(title, "", [figures.moments(moments, "features", called)])


def silo_table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], left_out: int) -> Fold:
    """Return the table of the silos, shut where it is long."""
    note = [Said(f"{left_out:,} silos in the middle are left out.", "soft")] if left_out else []
    return Fold("Every silo", [Table(heads, rows), *note], opened=len(rows) <= MOST_OPEN)


def sized(number: int, most: int) -> Cell:
    """Return a cell with a number on a bar."""
    return Cell(f"{number:,}", look="size", share=number / most)


def _silos(summary: FolderSummary, most: Most) -> Fold:
    rows = chosen_rows(len(summary.sizes), everything=False, most=MOST_ROWS)
    heads = ["silo", "training examples", *(f"{split} examples" for split in _held_out(summary))]
    heads += [f"{split} groups" for split in summary.splits_of_groups]
    heads += ["tokens"] if summary.tokens_of(0) else []
    heads += ["training labels", "seen", "divergence"] if summary.labelled else []
    heads += ["mean", "deviation"] if summary.of_one_kind else []
    heads += summary.target_names(MOST_TARGETS)
    return silo_table(heads, [_silo(summary, silo, most) for silo in rows], len(summary.sizes) - len(rows))


def _held_out(summary: FolderSummary) -> list[str]:
    """Return the splits that silos hold out."""
    return [split for split in SPLITS[1:] if any(split in of.examples for of in summary.spec.silos)]


def _silo(summary: FolderSummary, silo: int, most: Most) -> list[Cell]:
    of_label, entry = summary.counts[silo], summary.spec.silos[silo]
    cells = [Cell(entry.name), sized(int(summary.sizes[silo]), most.examples)]
    cells += [Cell(f"{entry.examples.get(split, 0):,}") for split in _held_out(summary)]
    cells += map(Cell, [*summary.groups_of(silo), *summary.tokens_of(silo)])
    if summary.labelled:
        cells.append(Cell(look="left", path=figures.of_labels(summary.shares[silo], most.share)))
        cells.append(Cell(f"{np.count_nonzero(of_label)}/{len(of_label)}"))
        cells.append(Cell(f"{summary.divergences[silo]:.3f}"))
    if summary.moments and summary.of_one_kind:
        cells += [Cell(f"{figure:.4g}") for figure in summary.moments[silo].overall()]
    return [*cells, *map(Cell, summary.target_figures(silo, MOST_TARGETS))]
