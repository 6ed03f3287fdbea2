"""What is told of each variable, as plain values, after what is of few rows was taken out."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpifl.wings.analysis.column_moments import MeanDeviation, apart
from mpifl.wings.analysis.federation_columns import FederationColumns, Unit
from mpifl.wings.analysis.number_cells import ColumnCells, number_of
from mpifl.wings.analysis.small_cells import kept_edges, withheld

QUARTILES = (0.25, 0.5, 0.75)
BINS = 24
"""Bins of a histogram at most."""
FENCE = 1.5
"""A histogram goes so many distances of the quartiles beyond them (Tukey 1977)."""
OTHERS = "others"
Told = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """What sums over all rows say of a column.

    Attributes:
        count: How many numbers there are.
        found: The cells that were found.
        moments: The mean and the deviation.
    """

    count: int
    found: ColumnCells
    moments: MeanDeviation

    def number(self, rank: int) -> float:
        """Return the number with a rank, counted from 0."""
        return number_of(self.found.at(rank).digits)

    @property
    def quartiles(self) -> list[float]:
        """The quartiles. One between two numbers lies on the line between them, as in R and numpy (Hyndman &
        Fan 1996, type 7)."""
        found = []
        for share in QUARTILES:
            place = (self.count - 1) * share
            low, high = self.number(math.floor(place)), self.number(math.ceil(place))
            found.append(low + (high - low) * (place - math.floor(place)))
        return found

    def edges(self, unit: Unit) -> list[float]:
        """Return edges of a histogram at round numbers of a unit; none where few numbers are different."""
        if self.found.whole:
            return []
        low, _, high = map(unit.of, self.quartiles)
        wide = high - low
        if wide <= 0:
            return []
        rough = (1 + 2 * FENCE) * wide / (BINS - 3)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(one * power for one in (1, 2, 5, 10, 20) if one * power >= rough)
        first, last = math.ceil((low - FENCE * wide) / step), math.floor((high + FENCE * wide) / step)
        return [nth * step for nth in range(first, last + 1)]


def ranks_of(count: int, extremes: bool) -> set[int]:
    """Return the ranks that quartiles need, and by `extremes` the first and the last."""
    places = [(count - 1) * share for share in QUARTILES]
    found = {rank for place in places for rank in (math.floor(place), math.ceil(place))}
    return found | ({0, count - 1} if extremes else set())


@dataclass(frozen=True)
class Summaries:
    """What is told of the variables.

    Attributes:
        columns: The columns.
        measured: What was found of each.
        bins: The edges of a column's histogram in its unit, and how many numbers lie in each bin.
        rows: How many rows there are.
        least: The least number of rows that a count may be of.
        extremes: Whether the smallest and the largest number may be told.
    """

    columns: FederationColumns
    measured: Sequence[Measured]
    bins: Mapping[int, tuple[Sequence[float], Sequence[int]]]
    rows: int
    least: int
    extremes: bool

    def table(self) -> list[Told]:
        """Return what is told of each variable, in the order of the columns."""
        grouped = {name: [*of] for name, of in self.columns.groups.items() if self._is_partition([*of])}
        first = {of[0]: name for name, of in grouped.items()}
        inside = {nth for of in grouped.values() for nth in of}
        found = list[Told]()
        for nth, name in enumerate(self.columns.names):
            if nth in first:
                found.append(self._levels(first[nth], grouped[first[nth]]))
            elif nth not in inside:
                found.append({"name": name, "columns": [nth], **self._missing(nth), **self._column(nth)})
        self._withhold_together(found)
        return found

    def _withhold_together(self, table: Sequence[Told]) -> None:
        """Withhold all columns of a variable that are told one by one, as standardised ones, if one of them
        is: their counts may add up."""
        of = {nth: name for name, group in self.columns.groups.items() for nth in group}
        loose = [
            (of[one["columns"][0]], one)
            for one in table
            if one["kind"] != "levels" and one["columns"][0] in of
        ]
        few = {name for name, one in loose if one["withheld"]}
        for name, one in loose:
            if name in few:
                kept = {key: one[key] for key in ("name", "columns")}
                one.clear()
                one |= {**kept, "kind": "values", "levels": [], "withheld": True}

    def with_silos(
        self, table: Sequence[Told], silos: Mapping[int, Sequence[MeanDeviation]], rows: Sequence[int]
    ) -> None:
        """Add what single silos tell to each variable of which nothing is withheld and all silos tell it.

        Args:
            table: What `table` has returned.
            silos: The moments of each silo, by column.
            rows: How many rows each silo has.
        """
        for one in table:
            if one["withheld"] or not (silos.keys() >= {*one["columns"]} and one.get("complete", True)):
                continue
            cells = one["levels"] if one["kind"] == "levels" else [one]
            for nth, cell in zip(one["columns"], cells, strict=True):
                unit, found = self.columns.unit(nth), self.measured[nth].found
                shares = found.whole and found.values.keys() <= {0.0, 1.0}
                cell |= {
                    "silos": [of.in_unit(*unit)._asdict() for of in silos[nth]],
                    **apart(silos[nth], rows, shares=shares),
                }

    def _least(self, nth: int) -> int:
        """Return the least count of a column that may be told: of all the numbers of `least` rows."""
        return self.least * self.measured[nth].count // self.rows

    def _is_partition(self, group: Sequence[int]) -> bool:
        """Return whether columns are zeros and ones, and no row has two ones."""
        values = [self.measured[nth].found for nth in group]
        marks = all(one.whole and one.values.keys() <= {0.0, 1.0} for one in values)
        return marks and sum(self._ones(nth) for nth in group) <= self.measured[group[0]].count

    def _ones(self, nth: int) -> int:
        return self.measured[nth].found.values.get(1.0, 0)

    def _levels(self, name: str, group: Sequence[int]) -> Told:
        """Return how many rows have each level; rows without any are a cell that is not told."""
        counts, total = [self._ones(nth) for nth in group], self.measured[group[0]].count
        rest = total - sum(counts)
        few = withheld([*counts, *([rest] if rest else [])], self._least(group[0]))
        cells = [
            {"level": level, "count": None, "share": None}
            if nth in few
            else {"level": level, "count": count, "share": count / total}
            for nth, (level, count) in enumerate(zip(self._names_of(name, group), counts, strict=True))
        ]
        told = {"columns": [*group], "levels": cells, "withheld": bool(few), "complete": not rest}
        return {"name": name, "kind": "levels", **told}

    def _names_of(self, name: str, group: Sequence[int]) -> list[str]:
        return [self.columns.groups[name][nth] for nth in group]

    def _missing(self, nth: int) -> Told:
        """Return how many values were missing, where the shards know it; None where that is withheld."""
        if (missing := self.columns.filled.get(nth)) is None:
            return {}
        return {"missing": None if withheld([missing, self.rows - missing], self.least) else missing}

    def _column(self, nth: int) -> Told:
        """Return the figures of a column of numbers."""
        one, unit = self.measured[nth], self.columns.unit(nth)
        if self.rows < max(self.least, 2):
            return {"kind": "numbers", "withheld": True}
        told: Told = {"kind": "numbers", "withheld": False, **one.moments.in_unit(*unit)._asdict()}
        told |= {"since": self.columns.since[nth]} if nth in self.columns.since else {}
        if one.found.whole:
            return self._values(nth, told)
        if self.rows < 4 * self.least:
            return told
        told["quartiles"] = [unit.of(value) for value in one.quartiles]
        if self.extremes:
            ends = one.number(0), one.number(one.count - 1)
            told |= dict(zip(("minimum", "maximum"), map(unit.of, ends), strict=True))
        return told | self._histogram(nth)

    def _values(self, nth: int, told: Told) -> Told:
        """Return how often each of few numbers occurs. From such counts and a mean others follow, so with one
        count the mean and the deviation are withheld."""
        one, unit = self.measured[nth], self.columns.unit(nth)
        few = withheld([*one.found.values.values()], self._least(nth))
        counts = Counter[str]()
        for place, (value, count) in enumerate(one.found.values.items()):
            if place not in few:
                counts[f"{unit.of(value):.7g}"] += count
        if few and counts:
            counts[OTHERS] = one.count - sum(counts.values())
        cells = [
            {"level": level, "count": count, "share": count / one.count} for level, count in counts.items()
        ]
        kept: Told = {key: told[key] for key in ("mean", "deviation", "since") if key in told}
        if few:  # a filled gap may be one of these numbers
            kept = {"missing": None} if nth in self.columns.filled else {}
            kept |= {"since": told["since"]} if "since" in told else {}
        return {"kind": "values", "levels": cells, "withheld": bool(few), **kept}

    def _histogram(self, nth: int) -> Told:
        """Return edges and counts, in fewer bins where few rows lie between edges.

        Counts are rounded to multiples of the least one. Exact ones of whole numbers would tell, with the
        mean and the deviation, how often a number occurs within a bin.
        """
        one, least = self.measured[nth], self._least(nth)
        edges, counts = self.bins.get(nth, ((), ()))
        below = [sum(counts[: place + 1]) for place in range(len(edges))]
        cells = [one.found.at(rank) for rank in ranks_of(one.count, self.extremes)]
        told = {place for cell in cells for place in (cell.below, cell.below + cell.inside)}
        kept = kept_edges(below, told, one.count, least)
        places = [0, *(below[place] for place in kept), one.count]
        inside = [(high - low + least // 2) // least * least for low, high in itertools.pairwise(places)]
        found = {"edges": [edges[place] for place in kept], "counts": inside}
        return {"histogram": found} if kept else {}
