"""Rows that lack a value: left out and counted where a spec says so, refused where it says nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from data_prep.tables import TableSpec
from data_prep.tables.values.piece import Piece
from data_prep.tables.values.tallying import Tally
from mpifl.common import InputError


@dataclass
class Gaps:
    """What was left out of a table.

    Attributes:
        rows: How many rows were.
        of: How many there are.
        columns: How many of these lack a value, by column.
        silos: How many of them each natural silo lost, by its name.
        commented: How many lines look like rows and are comments.
    """

    rows: int = 0
    of: int = 0
    columns: Counter[str] = field(default_factory=Counter)
    silos: Counter[str] = field(default_factory=Counter)
    commented: int = 0

    def leave_out(self, piece: Piece, spec: TableSpec) -> Piece:
        """Return the rows that stay, and count the others."""
        kept = piece.without_gaps(spec.dropping)
        self.of += len(piece)
        self.rows += len(piece) - len(kept)
        if len(kept) == len(piece):
            return piece
        lacking = {name: piece.columns[name].lacking for name in spec.dropping}
        self.columns.update({name: count for name, count in lacking.items() if count})
        if spec.silo is not None:
            lost = piece.columns[spec.silo].take(np.flatnonzero(~np.isin(piece.rows, kept.rows)))
            self.silos.update(name for name in lost if name is not None)
        return kept

    def told(self) -> dict[str, Any]:
        """Return what `federation.json` says of it; nothing where all rows stayed."""
        silos = {"silos": dict(sorted(self.silos.items()))} if self.silos else {}
        rows = {"rows": self.rows, "of": self.of, "columns": dict(self.columns), **silos} if self.rows else {}
        return rows | ({"commented": self.commented} if self.commented else {})


def without_gaps(pieces: Iterable[Piece], spec: TableSpec, gaps: Gaps) -> Iterator[Piece]:
    """Yield the rows of a table that stay.

    Raises:
        InputError: one lacks a value of a column of which the spec says nothing; all were looked through
            then, so that it says how many do.
    """
    unsaid = [name for name, column in spec.features.items() if column.missing is None]
    first, where, lacking, blank = "", "", Counter[str](), 0
    for every in pieces:
        piece = gaps.leave_out(every, spec)
        found = {name: n for name in unsaid if (n := piece.columns[name].lacking)}
        if found and not lacking:
            name = next(iter(found))
            first = f"{piece.at(int(np.argmax(piece.columns[name].gaps)))}: {name}"
        if found:
            empty = np.flatnonzero(np.all([texts.gaps for texts in every.columns.values()], axis=0))
            where = where or (every.at(int(empty[0])) if len(empty) else "")
            blank += len(empty)
        lacking.update(found)
        if not lacking:
            yield piece
    if blank:
        lines = f"line{'s' * (blank > 1)}"
        what = f"has no value in any column, as {blank:,} {lines} of {gaps.of:,}"
        raise InputError(f"{where}: {what}; remove such {lines}, which spreadsheets leave at the end")
    if lacking:
        raise InputError(f"{first} {_refusal(spec, lacking, gaps.of)}")


def _refusal(spec: TableSpec, lacking: Counter[str], rows: int) -> str:
    """Say how many rows lack a value, and what may become of them."""
    name, *others = lacking
    kind = spec.features[name].kind
    choices = "'level' or 'constant'" if kind == "categorical" else "'mean' or 'constant'"
    also = "".join(f", {other} in {lacking[other]:,}" for other in others[:5])
    what = f"is missing, in {lacking[name]:,} of {rows:,} rows{also}"
    return f"{what}; say missing = 'drop' (leaves the row out), {choices} in the spec"


def marked(tallies: Mapping[str, Tally]) -> list[str]:
    """Say what stands for a missing value, how often, and where first."""
    found: dict[str, tuple[int, str]] = {}
    for name, tally in tallies.items():
        for mark, (times, where) in tally.marks.items():
            before, first = found.get(mark, (0, f"in {name} ({where})"))
            found[mark] = before + times, first
    remedy = "remove it from 'missing' if it is a value"
    return [f"missing: '{mark}', {n:,} times, first {where}; {remedy}" for mark, (n, where) in found.items()]
