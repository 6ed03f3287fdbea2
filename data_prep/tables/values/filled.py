"""Values that new rows lack, and rows of which nothing is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from data_prep.tables.values.piece import Piece

FILLED = ("mean", "constant")
"""What the spec of a training has for a missing value, and no row can tell."""
MOST_NAMED = 5
"""Columns and rows in a line."""


class Filled:
    """Counts what is filled in, in rows that are looked at piece by piece.

    Args:
        columns: What becomes of a missing value of each column that a model takes, by the column's name.
    """

    def __init__(self, columns: Mapping[str, str | None]) -> None:
        self._columns, self._by_column = columns, Counter[str]()
        self._rows, self._of, self._unknown, self._named = 0, 0, 0, list[str]()

    def look(self, piece: Piece) -> None:
        """Look at more rows."""
        gaps = {name: piece.columns[name].gaps for name in self._columns}
        filled = [gap for name, gap in gaps.items() if self._columns[name] in FILLED]
        for name, gap in gaps.items():
            if self._columns[name] in FILLED and gap.any():
                self._by_column[name] += int(gap.sum())
        self._of += len(piece)
        self._rows += int(np.any(filled, axis=0).sum()) if filled else 0
        blank = np.flatnonzero(np.all([*gaps.values()], axis=0))
        self._unknown += len(blank)
        left = MOST_NAMED - len(self._named)
        self._named += [piece.at(row).rpartition(": ")[2] for row in blank[:left].tolist()]

    def told(self) -> list[str]:
        """Return lines about filled values, and about rows without any known value; none where none is."""
        said = []
        if self._rows:
            most = self._by_column.most_common(MOST_NAMED)
            columns = ", ".join(f"{name} {times:,}" for name, times in most)
            more = (
                f" and {len(self._by_column) - len(most):,} more" if len(self._by_column) > len(most) else ""
            )
            rows = f"{self._rows:,} of {self._of:,} rows lack values, which are filled in as in the training"
            said.append(f"{rows}: {columns}{more}")
        if self._unknown:
            named = f"{', '.join(self._named)}{', ...' * (self._unknown > len(self._named))}"
            what = f"{self._unknown:,} of {self._of:,} rows have no known value at all ({named})"
            said.append(f"{what}: their predictions say nothing of them; leave these rows out")
        return said
