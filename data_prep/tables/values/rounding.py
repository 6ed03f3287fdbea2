"""Numbers of float64 that float32, which a model sees, cannot tell apart."""

from __future__ import annotations

import numpy as np

from mpifl.common import InputError
from mpifl.data import merged

COARSE = 1e-3
"""How far float32 may be off, beside how far a column's numbers lie apart."""
MERGED = 0.1
"""The share of a column's different numbers that float32 may make one with another."""


class Rounding:
    """How far float32 is off in the columns of a table, looked at piece by piece."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[np.ndarray, np.ndarray, float]] = {}
        self._merged: set[str] = set()

    def add(self, name: str, numbers: np.ndarray, scaled: np.ndarray | None = None) -> None:
        """Look at some finite numbers of a column, float64 [m], and at what a model is given in their place,
        float64 [m], if that is another."""
        exact = numbers if scaled is None else scaled
        if len(exact):
            off = float(np.abs(exact - exact.astype(np.float32)).max())
            if off and name not in self._found and _merged(numbers, exact) > MERGED:
                self._merged.add(name)
            both, unknown = np.stack([numbers, exact]), np.full(2, np.inf)
            least, most, before = self._found.get(name, (unknown, -unknown, 0.0))
            self._found[name] = (
                np.minimum(least, both.min(axis=1)),
                np.maximum(most, both.max(axis=1)),
                max(before, off),
            )

    def check(self, where: str, remedies: dict[str, str]) -> None:
        """Refuse a column of which float32 loses what tells its numbers apart; `remedies` say by column what
        would do."""
        for name, (least, most, off) in self._found.items():
            span = most[1] - least[1]
            if most[0] > least[0] and (off > COARSE * span or name in self._merged):
                what = f"numbers from {least[0]:.15g} to {most[0]:.15g}, which float32 cannot tell apart"
                raise InputError(f"{where}: column '{name}' has {what}; {remedies[name]}")


def _merged(numbers: np.ndarray, exact: np.ndarray) -> float:
    """Return the share of different numbers, of float64 [m], that are one with the next in float32 of
    `exact`, which has their order."""
    different, one = merged(numbers, exact)
    return float(np.count_nonzero(one)) / len(different)
