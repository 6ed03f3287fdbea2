"""What a spec does to the values of a table, counted: gaps that are filled, spellings taken for one."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from data_prep.tables import MISSING_LEVEL, Column, Spelled, TableSpec
from data_prep.tables.values.dates import is_zoned
from data_prep.tables.values.gaps import Gaps
from data_prep.tables.values.id_columns import is_index
from data_prep.tables.values.piece import Piece
from data_prep.tables.values.spellings import AS_NUMBERS, meaning

BLANKS, ZONE = "blanks behind it", "another zone than UTC"
Owners = Counter[str | None]
"""How many values each natural silo has; None is that of a table without."""


@dataclass
class Count:
    """How many values were changed, by column, what was done and natural silo."""

    found: defaultdict[tuple[str, str], Owners] = field(default_factory=lambda: defaultdict(Counter))

    def told(self) -> dict[str, Any]:
        """Return what `federation.json` says of it; nothing where nothing was changed."""
        columns: dict[str, dict[str, int]] = {}
        silos: Counter[str] = Counter()
        for (name, what), owners in self.found.items():
            columns.setdefault(name, {})[what] = owners.total()
            silos.update({silo: count for silo, count in owners.items() if silo is not None})
        every = {"columns": columns} if columns else {}
        return every | ({"silos": dict(sorted(silos.items()))} if silos else {})


class Changes:
    """What is done to the rows of a table by a spec.

    Attributes:
        dropped: The rows that are left out.
        filled: The gaps in the others that are filled.
    """

    def __init__(self, spec: TableSpec) -> None:
        self._spec, self.dropped, self.filled = spec, Gaps(), Count()
        self._spelled, self._respelled = Count(), Count()
        """By spellings that the spec states; and by others."""
        stated = {name: column.levels or () for name, column in spec.features.items()}
        of_label = spec.label.read if spec.label.kind == "categorical" and spec.threshold is None else ()
        stated |= dict.fromkeys(of_label, spec.classes or ())
        self._others = {name: others for name, values in stated.items() if (others := _others(values))}
        levels = [name for name, column in spec.features.items() if column.kind == "categorical"]
        names = [*levels, *of_label, *([] if spec.silo is None else [spec.silo])]
        self._bare: dict[str, set[str]] = {name: set() for name in names}
        self._padded: dict[str, defaultdict[str, Owners]] = {name: defaultdict(Counter) for name in names}
        marked = {"multilabel": spec.label.read, "survival": spec.label.read[1:]}.get(spec.label.kind, ())
        self._marks: dict[str, dict[Any, dict[str, Owners]]] = {name: {} for name in marked}
        """The spellings of each mark of yes and no, in the order in which they came."""

    def look(self, piece: Piece) -> None:
        """Count what is done to some rows, none of which is left out."""
        for name, column in self._spec.features.items():
            if (texts := piece.columns[name]).lacking:
                self.filled.found[name, _filling(column)] += self._owners(piece, np.flatnonzero(texts.gaps))
        for name, others in self._others.items():
            different, codes = piece.columns[name].different
            for code, text in enumerate(different):
                if text in others:
                    owners = self._owners(piece, np.flatnonzero(codes == code))
                    self._spelled.found[name, f"'{text}' as '{others[text]}'"] += owners
        for name, column in self._spec.features.items():
            if column.since is not None:
                zone = functools.partial(is_zoned, form=column.format)
                zoned = np.flatnonzero(piece.columns[name].each(zone, False, bool))
                if len(zoned):
                    self._respelled.found[name, ZONE] += self._owners(piece, zoned)
        for name in self._bare:
            self._look_at_ends(piece, name)
        for name, marks in self._marks.items():
            different, codes = piece.columns[name].different
            for code in np.unique(codes[codes >= 0]).tolist():
                text = different[code]
                mark = meaning(AS_NUMBERS.get(text, text), piece.notation)
                owners = marks.setdefault(mark, {}).setdefault(text, Owners())
                owners += self._owners(piece, np.flatnonzero(codes == code))

    def told(self) -> dict[str, Any]:
        """Return what `federation.json` says of it, by what was done."""
        for name, padded in self._padded.items():
            both = [owners for text, owners in padded.items() if text in self._bare[name]]
            if both:
                self._respelled.found[name, BLANKS] = sum(both, Owners())
        for name, marks in self._marks.items():
            for spelled in marks.values():
                first, *others = spelled
                self._respelled.found |= {(name, f"'{one}' as '{first}'"): spelled[one] for one in others}
        factors = [f"{name} by {one.factor:g}" for name, one in self._spec.features.items() if one.factor]
        line = f"columns that were multiplied, by the spec: {', '.join(factors)}"
        told = {
            "notes": {"units": line} if factors else {},
            "factors": {name: one.factor for name, one in self._spec.features.items() if one.factor},
            "dropped": self.dropped.told(),
            "filled": self.filled.told(),
            "spelled": self._spelled.told(),
            "respelled": self._respelled.told(),
            "index": [name for name in self._spec.features if is_index(name)],
        }
        return {what: how for what, how in told.items() if how}

    def _look_at_ends(self, piece: Piece, name: str) -> None:
        """Note which values have blanks behind them, and which have none."""
        column = piece.columns[name]
        texts, codes = column.different
        if column.padded is None:
            self._bare[name].update(texts)
            return
        bare = np.unique(codes[~column.padded & (codes >= 0)])
        self._bare[name].update(texts[code] for code in bare.tolist())
        for code in np.unique(codes[column.padded & (codes >= 0)]).tolist():
            rows = np.flatnonzero(column.padded & (codes == code))
            self._padded[name][texts[code]] += self._owners(piece, rows)

    def _owners(self, piece: Piece, rows: np.ndarray) -> Owners:
        """Return how many of some rows each natural silo has."""
        if self._spec.silo is None:
            return Owners({None: len(rows)})
        names, codes = piece.columns[self._spec.silo].take(rows).different
        found = Owners()
        for name, count in zip(names, np.bincount(codes[codes >= 0], minlength=len(names)), strict=True):
            found[name] += int(count)
        return found


def _others(values: tuple[Spelled, ...]) -> dict[str, str]:
    """Return the other spellings of values, and what each value is called."""
    return {other: called for called, *others in values for other in others}


def _filling(column: Column) -> str:
    """Say what stands for a missing value of a column."""
    if column.missing == "mean":
        return "the mean"
    if column.missing == "level":
        return f"the level '{MISSING_LEVEL}'"
    if column.kind == "categorical":
        return f"'{column.constant}'"
    return f"{column.constant:g}" if isinstance(column.constant, float) else str(column.constant)


def told_of(changes: Changes, of_test: Changes) -> dict[str, Any]:
    """Return what `federation.json` says of a table, and of that of the server's test set."""
    told = changes.told()
    counted = ((what, how) for what, how in of_test.told().items() if what not in ("notes", "factors"))
    tested = {what: how for what, how in counted if isinstance(how, dict)}
    return told | {what: {**told.get(what, {}), "test": how} for what, how in tested.items()}
