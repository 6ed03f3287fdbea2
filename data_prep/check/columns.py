"""What the silos of a vertical folder hold, and what may be wrong with it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from data_prep.check.checking import Finding, Finite, strays
from data_prep.model import release, row_bytes
from data_prep.write import PIECE
from mpifl.common import ShardError
from mpifl.data import (
    VerticalEntry,
    VerticalSpec,
    VerticalSplit,
    label_counts,
    open_vertical,
    read_vertical,
)

MOST_NAMED = 6
"""Columns of a silo that the table names."""


def told(folder: Path, spec: VerticalSpec) -> str:
    """Say in one line what a vertical folder holds."""
    widths = [len(entry.columns) for entry in spec.silos]
    rows = ", ".join(f"{n:,} {split}" for split, n in spec.silos[0].examples.items())
    holder = next((entry.silo for entry in spec.silos if entry.labels is not None), "no silo")
    extent = f"{min(widths)} to {max(widths)}" if min(widths) < max(widths) else str(widths[0])
    return (
        f"{folder}: {len(widths)} silos of {extent} columns each, the same rows ({rows}), labels at {holder}"
    )


def show_columns(folder: Path, console: Console) -> None:
    """Print the columns of every silo of a vertical folder; opens federation.json alone."""
    spec = read_vertical(folder)
    console.print(Text(told(folder, spec), style="bold"))
    table = Table("silo", "name", "number of columns", "columns", "labels", "bytes", header_style="bold")
    for entry in spec.silos:
        labels = "" if entry.labels is None else f"{spec.classes} classes" if entry.labels else spec.aim
        cells = (
            str(entry.silo),
            entry.name,
            str(len(entry.columns)),
            _named(entry, spec),
            labels,
            decimal(entry.bytes),
        )
        table.add_row(*map(Text, cells))
    console.print(table)


def _named(entry: VerticalEntry, spec: VerticalSpec) -> str:
    names = spec.feature_names
    first = [names[at] if names and at < len(names) else str(at) for at in entry.columns[:MOST_NAMED]]
    return ", ".join(first) + ", ..." * (len(entry.columns) > MOST_NAMED)


def check_columns(folder: Path) -> tuple[VerticalSpec, list[Finding]]:
    """Look through a vertical folder: each shard, the columns, the labels' holder, and that all have the same
    rows.

    Raises:
        ShardError: there is no `federation.json` that can be read.
    """
    spec = read_vertical(folder)
    findings = [*strays(folder, {entry.file for entry in spec.silos}), *_check_entries(spec)]
    first: dict[str, np.ndarray] | None = None
    for entry in spec.silos:
        try:
            splits = open_vertical(folder, entry, spec)
        except ShardError as error:
            path = folder / entry.file
            kind = "damaged" if path.exists() else "missing"
            findings.append(Finding(entry.file, kind, str(error).removeprefix(f"{path}: ")))
            continue
        own = {name: split.id for name, split in splits.items()}
        first = first or own
        findings += _check_rows(entry, own, first)
        findings += [
            found for name, split in splits.items() for found in _check_split(entry, name, split, spec)
        ]
    return spec, findings


def _check_entries(spec: VerticalSpec) -> Iterator[Finding]:
    columns = sorted(column for entry in spec.silos for column in entry.columns)
    if len(columns) != math.prod(spec.features.shape) or columns != list(range(len(columns))):
        yield Finding("federation.json", "columns", "the silos' columns are not every column exactly once")
    if (holders := sum(entry.labels is not None for entry in spec.silos)) != 1:
        yield Finding("federation.json", "labels", f"{holders} silos hold the labels; one must")
    if len(tags := {entry.alignment for entry in spec.silos}) > 1:
        what = f"{len(tags)} alignments, so rows of one place may be different people; align again"
        yield Finding("federation.json", "alignment", what)


def _check_rows(
    entry: VerticalEntry, own: dict[str, np.ndarray], first: dict[str, np.ndarray]
) -> Iterator[Finding]:
    for name in sorted(own.keys() | first.keys()):
        if name not in own or name not in first or not np.array_equal(own[name], first[name]):
            yield Finding(
                entry.file, "rows", f"{name}: the ids are not those of the first silo, in the same order"
            )
        elif len(np.unique(own[name])) < len(own[name]):
            yield Finding(entry.file, "rows", f"{name}: an id occurs more than once")


def _check_split(
    entry: VerticalEntry, name: str, split: VerticalSplit, spec: VerticalSpec
) -> Iterator[Finding]:
    finite, step = Finite(), max(1, PIECE // row_bytes(split.x))
    for start in range(0, len(split.x), step):
        finite(start, split.x[start : start + step])
        release(split.x)
    if finite.bad:
        what = f"{name}: {finite.bad} examples have NaN or infinite features, the first is {finite.first}"
        yield Finding(entry.file, "not finite", what)
    if split.y is None or name != "train":
        return
    y = None if isinstance(split.y, dict) else split.y
    if label_counts(y, spec.classes, spec.targets) != entry.labels:
        yield Finding(entry.file, "label counts", "the labels are not as many as federation.json says")
