"""Counts, sums and sums of squares of columns:
what silos may add up to standardise alike without showing a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mpifl.common import InputError, write_atomic

CANCELLED = 1e-3
"""A deviation this small beside its mean is taken from squares about the mean: others are mostly rounding."""
CONSTANT = 1e-13
"""What rounding leaves of a constant column's deviation, beside its mean, by squares about the mean."""
ROUNDING = 1e-6
"""The same by squares about 0, in a file of the time before others were in it."""


class ColumnMoments(BaseModel):
    """The values of one column, added up; `apart` are their squares about the mean, None in older files."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    count: int = Field(0, ge=0, lt=1 << 63)
    sum: float = 0.0
    squares: float = Field(0.0, ge=0)
    apart: float | None = Field(None, ge=0)

    @property
    def mean(self) -> float:
        """Return the mean, 0 of nothing."""
        return self.sum / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Return the standard deviation (dividing by n); 1 for a column that is constant."""
        if not self.count:
            return 1.0
        size, known = abs(self.mean), self.apart is not None
        deviation = math.sqrt(max(self.squares / self.count - size * size, 0.0))
        if self.apart is not None and deviation <= CANCELLED * size:
            deviation = math.sqrt(self.apart / self.count)
        return deviation if deviation > (CONSTANT if known else ROUNDING) * size else 1.0

    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        """Put two sets of values together (Chan et al. 1979, eq. 2.1)."""
        if not (self.count and other.count):
            return self if self.count else other
        count, total, apart = self.count + other.count, self.sum + other.sum, None
        if self.apart is not None and other.apart is not None:
            between = other.mean - self.mean
            apart = self.apart + other.apart + between * between * (self.count * other.count / count)
        return ColumnMoments(count=count, sum=total, squares=self.squares + other.squares, apart=apart)


class Moments(BaseModel):
    """The moments of every numeric column of a table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: dict[str, ColumnMoments]

    def __add__(self, other: Moments) -> Moments:
        both = {**self.columns, **other.columns}
        own, others = (dict.fromkeys(both, ColumnMoments()) | part.columns for part in (self, other))
        return Moments(columns={name: own[name] + others[name] for name in both})

    def write(self, path: Path) -> None:
        """Write them as JSON, aside and renamed."""
        write_atomic(path, self.model_dump_json(indent=1).encode() + b"\n")


def moments_of(columns: dict[str, np.ndarray]) -> Moments:
    """Add up columns [n] of numbers, leaving out NaN (a missing value).

    Raises:
        ValidationError: squares are too large for float64.
    """
    known = {name: values[~np.isnan(values)] for name, values in columns.items()}
    with np.errstate(over="ignore", invalid="ignore"):
        return Moments(columns={name: _added(values) for name, values in known.items()})


def _added(values: np.ndarray) -> ColumnMoments:
    """Add up known values [n]."""
    if not len(values):
        return ColumnMoments()
    apart = float(np.square(values - values.mean()).sum())
    added = {"sum": float(values.sum()), "squares": float(np.square(values).sum())}
    return ColumnMoments(count=len(values), **added, apart=apart)


def read_moments(paths: Sequence[Path]) -> Moments:
    """Read the moments that silos made, and add them up in the order of the files."""
    total = Moments(columns={})
    for path in paths:
        try:
            total += Moments.model_validate_json(path.read_bytes())
        except OSError as error:
            what = f"cannot be read ({error.strerror})"
            raise InputError(
                f"{path}: {what}; 'standardise' of the table spec names the silos' statistics"
            ) from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            raise InputError(
                f"{path}: {where}: {first['msg']}; make it with 'data_prep statistics'"
            ) from None
    return total
