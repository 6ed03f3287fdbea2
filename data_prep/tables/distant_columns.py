"""Columns of new rows that lie far from those of a training, as in another unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from data_prep.dataset import Spread, differ, factor_told
from mpifl.common import InputError

FAR_MEAN, FAR_ROW, MOST_ROWS = 4.0, 8.0, 0.05
"""How many deviations off a mean is far, and a row, and the share of rows that may be far."""
LONE = 20.0
"""Deviations off from which on a single value is told: typed wrongly, or in another unit."""
BEYOND = 10.0
"""Deviations off from which on a mean is no other group of persons, and predictions are refused."""
FEWEST, MOST_KEPT = 5, 1 << 15
"""Rows without which quartiles say nothing of a unit, and those that they are of at most, the first ones."""
MOST_NAMED = 5
"""Columns in a line."""


@dataclass
class _Seen:
    """The values of a column so far: how many, their sum, how many are far off and their sum, the farthest
    one with its place, and the first ones."""

    count: int = 0
    total: float = 0.0
    far: int = 0
    total_far: float = 0.0
    farthest: tuple[float, float, str] = (0.0, 0.0, "")
    first: list[np.ndarray] = field(default_factory=list)

    @property
    def is_of_few(self) -> bool:
        """Tell whether the far values are fewer than the others, so that the column has its unit."""
        return 2 * self.far < self.count

    @property
    def mean(self) -> float:
        """The mean, without the far values where these are few."""
        few = self.is_of_few
        return (self.total - few * self.total_far) / (self.count - few * self.far)


class Afar:
    """What is far from the training in rows that are looked at piece by piece.

    Args:
        known: The mean and the deviation of each column in the training.
        to_do: What to do where one is far.
    """

    def __init__(self, known: Mapping[str, tuple[float, float]], to_do: str) -> None:
        self._columns, self._to_do = known, to_do
        self._seen = {name: _Seen() for name in self._columns}

    def look(self, name: str, values: np.ndarray, place: Callable[[int], str]) -> None:
        """Look at more values of a column; a missing one does not count.

        Args:
            name: The column.
            values: float64 [m].
            place: Says where the row of one of them stands, by its number among them.
        """
        (mean, deviation), seen = self._columns[name], self._seen[name]
        known = values[~np.isnan(values)]
        off = np.abs(values - mean) / deviation
        far = off > FAR_ROW
        seen.count += len(known)
        seen.total += float(known.sum())
        if seen.count <= MOST_KEPT:
            seen.first.append(known)
        seen.far += int(far.sum())
        seen.total_far += float(values[far].sum())
        if far.any() and off[row := int(np.nanargmax(off))] > seen.farthest[0]:
            seen.farthest = float(off[row]), float(values[row]), place(row)

    def told(self, where: object, *, force: bool = False) -> str | None:
        """Return a line about the columns that are far from the training, with figures; None without one.

        Args:
            where: The file of the rows.
            force: Take columns that are beyond what any training of this kind can have seen.

        Raises:
            InputError: there is such a column.
        """
        lines = [said for name in self._columns if (said := self._of_column(name))]
        if not lines:
            return None
        more = f"; and {len(lines) - MOST_NAMED:,} more columns" if len(lines) > MOST_NAMED else ""
        what = f"far from the training: {'; '.join(lines[:MOST_NAMED])}{more}"
        if not force and any(self._is_beyond(name) for name in self._columns):
            do = f"{self._to_do[:1].lower()}{self._to_do[1:]}"
            raise InputError(f"{where}: {what}. In another unit? Then {do}; --force takes them as they are")
        return f"{what}. Another unit? {self._to_do}"

    def _is_beyond(self, name: str) -> bool:
        """Tell whether a mean, or each of several rows, is farther off than rows of any training are."""
        (mean, deviation), seen = self._columns[name], self._seen[name]
        if not seen.count:
            return False
        off = abs(seen.mean - mean) / deviation
        return off > BEYOND or (seen.far == seen.count and seen.count >= FEWEST)

    def _of_column(self, name: str) -> str | None:
        """Say how far a column is from the training, if it is."""
        (mean, deviation), seen = self._columns[name], self._seen[name]
        if not seen.count:
            return None
        own = seen.mean
        off, share = abs(own - mean) / deviation, seen.far / seen.count
        if off > FAR_MEAN:
            here = f"{name} has mean {own:.4g} here, {mean:.4g} in the training"
            return f"{here} ({off:.3g} deviations of {deviation:.4g} off)"
        for rows_here, known in _compared(np.concatenate(seen.first), mean, deviation):
            if differ(rows_here, known, name):
                factor = factor_told(name, rows_here, known)
                middle = float(np.median(np.concatenate(seen.first)))
                unit = f" ({factor})" if factor else ""
                return f"{name} has median {middle:.4g} here, mean {mean:.4g} in the training{unit}"
        most, value, place = seen.farthest
        if share > MOST_ROWS or most > LONE:
            rows = f"{seen.far:,} of {seen.count:,} row{'s' * (seen.count > 1)}, as {value:.4g} ({place})"
            return (
                f"{name} is over {FAR_ROW:g} deviations off in {rows}; its mean is {mean:.4g} in the training"
            )
        return None


def _compared(values: np.ndarray, mean: float, deviation: float) -> Iterator[tuple[Spread, Spread]]:
    """Yield what is known of new rows and of a training in common: quartiles, and moments of positive values.

    Quartiles of a skewed column do not follow of its moments, so moments are compared with moments there.
    """
    if len(values) < FEWEST:
        return
    yield Spread.of("", values), Spread.of_moments("", mean, deviation)
    here, spread = float(values.mean()), float(values.std())
    if float(values.min()) > 0 and mean > 0 and spread > 0:
        there = Spread.of_positive_moments("", mean, deviation)
        yield Spread.of_positive_moments("", here, spread, len(values)), there
