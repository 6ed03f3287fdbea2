"""Turn the pieces of a table into features, labels and silos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.tables.moments import read_moments
from data_prep.tables.piece import Piece, ordered, some
from data_prep.tables.spec import Column, TableSpec
from data_prep.tables.stream import pieces
from data_prep.tables.surveying import Survey, is_needed, survey
from mpifl.common import InputError

MISSING_LEVEL = "missing"


@dataclass(frozen=True)
class Encoded:
    """Some rows in numbers: features float32 [m, d], labels int64 [m],
    and the silo each row names, if any."""

    x: np.ndarray
    y: np.ndarray
    silo: list[str]


class Encoder:
    """What turns rows of a table into numbers: the levels, classes and statistics that all of its rows share.

    Args:
        kind: `csv` or `parquet`.
        path: The table that these are taken from where the spec does not state them.
        spec: What its columns mean.
    """

    def __init__(self, kind: str, path: Path, spec: TableSpec) -> None:
        self.kind, self.spec = kind, spec
        found = survey(kind, path, spec) if is_needed(spec) else Survey()
        self.levels = {
            name: _levels(column, found.levels.get(name, set()))
            for name, column in spec.features.items()
            if column.kind == "categorical"
        }
        self.classes = spec.classes or tuple((label,) for label in ordered(found.classes))
        self._label = {spelling: label for label, each in enumerate(self.classes) for spelling in each}
        shared = spec.standardise if isinstance(spec.standardise, tuple) else None
        self._moments = (found.moments if shared is None else read_moments(shared)).columns
        self._check_moments(path)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the classes' names; of a threshold, what it says."""
        if (threshold := self.spec.threshold) is not None:
            return f"<= {threshold:g}", f"> {threshold:g}"
        return tuple(each[0] for each in self.classes)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the names of the d features, `column=level` for those of a one-hot column."""
        return tuple(name for column in self.spec.features for name in self._names(column))

    def read(self, path: Path) -> Iterator[Encoded]:
        """Yield the rows of a table in numbers, piece by piece; rows to drop are left out."""
        for every in pieces(self.kind, path, self.spec):
            piece = every.without_gaps(self.spec.dropping)
            columns = [self._encoded(piece, name) for name in self.spec.features]
            x = np.concatenate(columns, axis=1, dtype=np.float32)
            yield Encoded(x, self._labels(piece), self._silos(piece))

    def _names(self, name: str) -> list[str]:
        one_hot = self.spec.features[name].encoding == "one-hot"
        return (
            [f"{name}={level}" for level in self.levels[name]] if name in self.levels and one_hot else [name]
        )

    def _encoded(self, piece: Piece, name: str) -> np.ndarray:
        """Encode one column, float64 [m, 1 or levels]."""
        column = self.spec.features[name]
        if column.kind == "numeric":
            return self._standardised(name, piece.numbers(name))[:, None]
        stand_in = MISSING_LEVEL if column.missing == "level" else str(column.constant)
        found = [stand_in if value is None else value for value in piece.columns[name]]
        codes = _codes(found, {level: code for code, level in enumerate(self.levels[name])})
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            raise InputError(
                f"{piece.at(row)}: {name} is '{found[row]}'; its levels are {some(self.levels[name])}"
            )
        return codes[:, None] if column.encoding == "ordinal" else np.eye(len(self.levels[name]))[codes]

    def _standardised(self, name: str, values: np.ndarray) -> np.ndarray:
        column, moments = self.spec.features[name], self._moments.get(name)
        mean = column.mean if column.mean is not None else moments.mean if moments else 0.0
        deviation = column.deviation or (moments.deviation if moments else 1.0)
        stand_in = mean if column.missing == "mean" else column.constant
        filled = values if stand_in is None else np.nan_to_num(values, nan=float(stand_in))
        wanted = self.spec.standardise != "none" or column.deviation is not None
        return (filled - mean) / deviation if wanted else filled

    def _labels(self, piece: Piece) -> np.ndarray:
        name, threshold = self.spec.label, self.spec.threshold
        found = piece.columns[name]
        if None in found:
            raise InputError(
                f"{piece.at(found.index(None))}: {name}, the label, is missing; fill it in or remove the row"
            )
        if threshold is not None:
            return (piece.numbers(name) > threshold).astype(np.int64)
        codes = _codes(found, self._label)
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            what = f"{name} is '{found[row]}', an unknown class"
            raise InputError(f"{piece.at(row)}: {what}; there are {some(self.class_names)}")
        return codes

    def _silos(self, piece: Piece) -> list[str]:
        if (name := self.spec.silo) is None:
            return []
        if None in (found := piece.columns[name]):
            raise InputError(
                f"{piece.at(found.index(None))}: {name}, the silo, is missing; fill it in or remove the row"
            )
        return piece.known(name)

    def _check_moments(self, path: Path) -> None:
        """See that there are statistics for every column that needs them."""
        for name, column in self.spec.features.items():
            stated = column.mean is not None and column.deviation is not None
            shared = isinstance(self.spec.standardise, tuple) and column.kind == "numeric"
            if shared and not stated and not (name in self._moments and self._moments[name].count):
                raise InputError(
                    f"{path}: the statistics that 'standardise' names lack column '{name}'; make them anew"
                )


def _levels(column: Column, found: set[str]) -> tuple[str, ...]:
    """Return a column's levels: those stated or else those that occur,
    and what stands for a missing value."""
    occurring = found | {str(column.constant)} if column.missing == "constant" else found
    levels = column.levels or tuple(ordered(occurring))
    return (*levels, MISSING_LEVEL) if column.missing == "level" else levels


def _codes(values: Sequence[str | None], lookup: dict[str, int]) -> np.ndarray:
    """Number values, int64 [m]; -1 is none of those known."""
    return np.array([-1 if value is None else lookup.get(value, -1) for value in values], np.int64)
