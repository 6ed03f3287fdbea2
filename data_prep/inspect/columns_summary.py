"""A vertical folder in figures: who has which columns, and in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from data_prep.dataset import doubts
from data_prep.inspect.correlation import MOST_COLUMNS, correlations, icor, sample
from data_prep.inspect.feature_moments import FeatureMoments, moments_by_piece
from data_prep.inspect.heterogeneity import gini
from data_prep.inspect.overview import (
    bar,
    chosen_rows,
    compared_measures,
    filled,
    first_of,
    shown,
    sparkline,
    whole,
)
from data_prep.inspect.summary import Measure, is_tokens, title_of
from mpifl.data.shards import VerticalEntry, VerticalSpec, open_vertical, read_vertical

MOST_NAMED = 3
"""Columns of a silo, or runs of them, that the terminal names."""
MOST_SILOS = 12
"""Silos whose correlations the terminal shows."""


@dataclass(frozen=True)
class ColumnsSummary:
    """What `inspect` shows of a vertical folder.

    Attributes:
        spec: Its `federation.json`.
        moments: Those of every silo's training features, if the shards were read.
        correlated: Pcor of every pair of silos [silos, silos], if the shards were read.
    """

    spec: VerticalSpec
    moments: list[FeatureMoments] | None = None
    correlated: np.ndarray | None = None

    @property
    def warnings(self) -> list[str]:
        """Return what is doubtful by `federation.json`."""
        return [doubt.what for doubt in doubts(self.spec)]

    @property
    def widths(self) -> np.ndarray:
        """Return the number of columns of every silo."""
        return np.array([len(entry.columns) for entry in self.spec.silos])

    @property
    def title(self) -> str:
        """Say what was cut and how."""
        return title_of(self.spec)

    @property
    def held(self) -> str:
        """Say what the silos hold, and how large that is."""
        return f"{held(self.spec)}; {decimal(sum(entry.bytes for entry in self.spec.silos))}"

    @property
    def measures(self) -> list[Measure]:
        """Return how much the silos differ, and how much they have to do with each other."""
        found = [
            Measure("Width skew", "Gini coefficient of the numbers of columns", gini(self.widths), "", 1)
        ]
        if self.correlated is not None and len(self.widths) > 1:
            text = "between silos minus within silos (Icor)"
            ends = "below 0 where a silo's own columns correlate more"
            found.append(Measure("Correlation", text, icor(self.correlated), "", 1, ends))
        return found

    def learned(self, entry: VerticalEntry) -> str:
        """Say what targets a silo holds, if it does."""
        if entry.labels is None:
            return ""
        return (
            f"{self.spec.classes} classes" if self.spec.classes and not self.spec.targets else self.spec.aim
        )

    def named(self, entry: VerticalEntry) -> list[str]:
        """Return what a silo's columns are called, or runs of their numbers where they have no names."""
        names = self.spec.feature_names or []
        whole = all(max(one.columns) < len(names) for one in self.spec.silos)
        return [names[at] for at in entry.columns] if whole else runs(entry.columns)


def runs(numbers: Sequence[int]) -> list[str]:
    """Return ascending numbers as runs of neighbours: 0-13, 28-41."""
    starts = [at for at, number in enumerate(numbers) if not at or number != numbers[at - 1] + 1]
    ends = [*(at - 1 for at in starts[1:]), len(numbers) - 1]
    return [
        str(numbers[first]) if first == last else f"{numbers[first]}-{numbers[last]}"
        for first, last in zip(starts, ends, strict=True)
    ]


def held(spec: VerticalSpec) -> str:
    """Say in a line what the silos of a vertical folder hold."""
    widths = [len(entry.columns) for entry in spec.silos]
    rows = ", ".join(f"{n:,} {split}" for split, n in spec.rows.items())
    holder = next((entry.name for entry in spec.silos if entry.labels is not None), "no silo")
    extent = f"{min(widths)} to {max(widths)}" if min(widths) < max(widths) else str(widths[0])
    return f"{len(widths)} silos of {extent} columns each, the same rows ({rows}), labels at {holder}"


def summarise_columns(folder: Path, *, features: bool = False) -> ColumnsSummary:
    """Read a folder's `federation.json`, and with `features` its shards.

    Tokens have no means, and of very many columns no correlations are taken.
    """
    spec = read_vertical(folder)
    if not features:
        return ColumnsSummary(spec)
    opened = [open_vertical(folder, entry, spec, checksum=False)["train"].x for entry in spec.silos]
    moments = [
        moments_by_piece(x.reshape(len(x), -1)).seen(entry.features)
        for x, entry in zip(opened, spec.silos, strict=True)
    ]
    few = sum(len(entry.columns) for entry in spec.silos) <= MOST_COLUMNS
    found = correlations([sample(x) for x in opened]) if few else None
    return ColumnsSummary(spec, None if is_tokens(spec.features) else moments, found)


def show_columns(columns: ColumnsSummary, console: Console, *, everything: bool = False) -> None:
    """Print who has which columns, and how much the silos have to do with each other."""
    console.print(shown(f"{columns.spec.name}: {columns.title}", style="bold"))
    console.print(_table(columns, console, everything))
    rows = chosen_rows(len(columns.spec.silos), everything)
    if hidden := len(columns.spec.silos) - len(rows):
        console.print(shown(f"{hidden} silos are left out; --all shows them."))
    if columns.spec.class_names:
        console.print(shown(f"Labels, from the left: {first_of(columns.spec.class_names)}"))
    console.print(shown(columns.held))
    if columns.correlated is not None and len(columns.widths) <= MOST_SILOS:
        console.print(_correlations(columns.correlated))
    for measure in columns.measures:
        console.print(shown(f"{measure.name}, {measure.text}  {measure}"))


def _table(columns: ColumnsSummary, console: Console, everything: bool) -> Table:
    spec, unicode = columns.spec, console.encoding.lower().startswith("utf")
    most = int(columns.widths.max())
    moments = ["mean", "deviation"] if columns.moments else []
    headings = ("silo", "name", "columns", "", "which", *moments, "targets", "file")
    table = Table(*headings, header_style="bold")

    def cells_of(silo: int) -> list[str]:
        entry = spec.silos[silo]
        drawn = f" {sparkline(np.array(entry.labels), unicode)}" if entry.labels else ""
        own = [f"{figure:.4g}" for figure in columns.moments[silo].overall()] if columns.moments else []
        named = columns.named(entry)
        which = ", ".join(named[:MOST_NAMED]) + ", ..." * (len(named) > MOST_NAMED)
        held = [f"{len(entry.columns):,}", bar(len(entry.columns) / most, unicode), which, *own]
        return [str(silo), entry.name, *held, columns.learned(entry) + drawn, decimal(entry.bytes)]

    return filled(table, cells_of, len(spec.silos), everything)


def _correlations(found: np.ndarray) -> Table:
    table = Table("Pcor of silos", *map(str, range(len(found))), header_style="bold")
    for silo, row in enumerate(found):
        table.add_row(str(silo), *(f"{value:.3f}" for value in row))
    return table


def compared_columns(first: ColumnsSummary, second: ColumnsSummary) -> list[tuple[str, str, str, str]]:
    """Return the rows of a comparison: what, of the first, of the second, by how much they differ."""
    a, b = first.widths, second.widths
    rows = [
        whole("Silos", len(a), len(b)),
        whole("Training rows", first.spec.rows["train"], second.spec.rows["train"]),
        whole("Columns", a.sum(), b.sum()),
        whole("Fewest columns of a silo", a.min(), b.min()),
        whole("Most columns of a silo", a.max(), b.max()),
    ]
    return rows + compared_measures(first.measures, second.measures)
