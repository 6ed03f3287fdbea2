"""Columns that are brought to mean 0 and deviation 1 once it is known which rows train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from data_prep.dataset import Rows, blocks_at
from data_prep.tables import Moments, moments_of
from mpifl.data.shards import record_of

WAYS = ("own", "train")
"""By which rows: by all, or by those that train."""
PIECE = 1 << 24
"""Bytes of rows that are looked at together."""


class Standardising:
    """The statistics of columns, by which rows and those of a test set are standardised alike.

    Args:
        way: One of `WAYS`.
        columns: The names of the columns [n, d] that are standardised, by their places.
        dtype: What rows become.
        encoding: Returns the encoding of the data by these statistics, as `encoding` of `source` has it.
    """

    def __init__(
        self,
        way: str,
        columns: Mapping[int, str],
        dtype: Any,
        encoding: Callable[[Moments], dict[str, Any] | None] | None = None,
    ) -> None:
        self.way, self.dtype, self._columns, self._encoding = way, np.dtype(dtype), dict(columns), encoding
        self._rows: Rows | None = None
        self._moments = Moments(columns={})

    def training(self, rows: Rows) -> StandardisedRows:
        """Return rows that are standardised by statistics of themselves."""
        self._rows = rows
        return StandardisedRows(rows, self)

    def fit(self, ids: np.ndarray) -> None:
        """Learn the statistics: of the rows at some positions, which train, or of all."""
        rows = self._rows
        assert rows is not None
        ids = np.sort(ids) if self.way == "train" else np.arange(rows.shape[0])
        for _, block in blocks_at(rows, ids, PIECE):
            values = {name: block[:, at].astype(np.float64) for at, name in self._columns.items()}
            self._moments += moments_of(values)

    def applied(self, x: np.ndarray) -> np.ndarray:
        """Standardise rows; a missing value becomes the mean."""
        found = x.astype(np.float64)
        places = [*self._columns]
        found[:, places] = in_deviations(found[:, places], [*self._known().values()])
        return found.astype(self.dtype)

    @property
    def encoding(self) -> dict[str, Any] | None:
        """Return how examples become numbers: as the source says it, or the mean and deviation of columns."""
        if self._encoding is not None:
            return self._encoding(self._moments)
        return record_of("arrays", by=self.way, columns=self._known())

    def _known(self) -> dict[str, list[float]]:
        known = {name: self._moments.columns[name] for name in self._columns.values()}
        return {name: [one.mean, one.deviation] for name, one in known.items()}


def in_deviations(x: np.ndarray, known: Sequence[Sequence[float]]) -> np.ndarray:
    """Return columns [n, d] in their deviations from the mean, float64; `known` has both of each column."""
    mean, deviation = np.array(known, np.float64).T
    found: np.ndarray = np.nan_to_num((x.astype(np.float64) - mean) / deviation, nan=0.0)
    return found


class StandardisedRows:
    """Rows [n, d] that are standardised when they are asked for."""

    def __init__(self, rows: Rows, by: Standardising) -> None:
        self.rows, self._by = rows, by
        self.shape, self.dtype = rows.shape, by.dtype
        self.sequential: bool = getattr(rows, "sequential", False)
        self.step: int = getattr(rows, "step", 1) or 1

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: Any) -> np.ndarray:
        return self._by.applied(np.asarray(self.rows[at]))
