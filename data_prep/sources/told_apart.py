"""Values of arrays that float32, which a model sees, cannot tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from data_prep.tables import Rounding
from mpifl.common import InputError
from mpifl.data import Aims, Array, Column, Ragged, Targets, check_times

SURVIVAL = {"time", "event"}
"""What the targets of survival are called."""
ROWS = 1 << 14
"""Rows that are looked at in one go, as a table's."""
REMEDY = "count from a zero nearer to them, or use another unit"


def check_told_apart(path: Path, called: str, y: Array, targets: Aims | None) -> None:
    """Check that float32 keeps apart what tells values apart.

    Times of survival may not become ties. Other values are held to the rule of a table's columns.

    Args:
        path: The file, as messages name it.
        called: The name of the array in the file.
        y: The targets.
        targets: What they are; None for class numbers.

    Raises:
        InputError: it does not.
    """
    if isinstance(y, Mapping):
        assert isinstance(targets, Mapping)
        for name, array in y.items():
            timed = y.keys() == SURVIVAL and name == "time"
            _check(path, f"{called}_{name}", array, targets[name], timed=timed)
    else:
        assert not isinstance(targets, Mapping)
        _check(path, called, y, targets)


def _check(path: Path, called: str, y: Column, targets: Targets | None, *, timed: bool = False) -> None:
    if (
        targets is None
        or targets.classes is not None
        or targets.dtype == "bool"
        or targets.ignore is not None
    ):
        return
    if isinstance(y, Ragged) or y.ndim > 2 or not len(y):
        return
    columns = np.asarray(y).reshape(len(y), -1)
    if timed or _of_survival(columns):
        try:
            return check_times(columns[:, 0])
        except ValueError as wrong:
            raise InputError(f"{path}: {called}: {wrong}") from None
    if y.dtype.itemsize > np.float32().itemsize:
        _check_columns(path, columns, [f"{called}[:, {nth}]" for nth in range(columns.shape[1])])


def _check_columns(path: Path, columns: np.ndarray, names: list[str]) -> None:
    rounding = Rounding()
    for start in range(0, len(columns), ROWS):
        for name, column in zip(names, columns[start : start + ROWS].T.astype(np.float64), strict=True):
            rounding.add(name, column)
    rounding.check(str(path), dict.fromkeys(names, REMEDY))


def _of_survival(columns: np.ndarray) -> bool:
    """Whether columns are times, which are 0 or more, and events, which are 0 or 1."""
    if columns.shape[1] != len(SURVIVAL):
        return False
    time, event = columns.T
    return bool((time >= 0).all() and ((event == 0) | (event == 1)).all())
