"""Numbers of float64 that float32, which a model sees, cannot tell apart."""

from __future__ import annotations

import numpy as np

from mpifl.common import InputError

COARSE = 1e-3
"""How far float32 may be off, beside how far a column's numbers lie apart."""
NOISE = 1e-10
"""How far two numbers may lie apart, beside their size, and be the same but for how they were calculated."""
MERGED = 0.1
"""The share of a column's different numbers that float32 may make one with another."""


class Rounding:
    """How far float32 is off in the columns of a table, looked at piece by piece."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, float, float]] = {}
        self._merged: set[str] = set()

    def add(self, name: str, exact: np.ndarray) -> None:
        """Look at some finite numbers of a column, float64 [m]."""
        if len(exact):
            off = float(np.abs(exact - exact.astype(np.float32)).max())
            if off and name not in self._found and _merged(exact) > MERGED:
                self._merged.add(name)
            before = self._found.get(name, (np.inf, -np.inf, 0.0))
            least, most = min(before[0], float(exact.min())), max(before[1], float(exact.max()))
            self._found[name] = (least, most, max(before[2], off))

    def check(self, where: str, remedies: dict[str, str]) -> None:
        """Refuse a column of which float32 loses what tells its numbers apart; `remedies` say by column what
        would do."""
        for name, (least, most, off) in self._found.items():
            if most > least and (off > COARSE * (most - least) or name in self._merged):
                what = f"numbers from {least:.15g} to {most:.15g}, which float32 cannot tell apart"
                raise InputError(f"{where}: column '{name}' has {what}; {remedies[name]}")


def _merged(exact: np.ndarray) -> float:
    """Return the share of different numbers, of float64 [m], that float32 makes one with the next."""
    numbers = np.unique(exact)
    apart = np.diff(numbers) > NOISE * np.abs(numbers[1:])
    same = np.diff(numbers.astype(np.float32)) == 0
    return float(np.count_nonzero(apart & same)) / len(numbers)
