"""Turn the pieces of a table into features, labels and silos."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.tables.columns import MISSING_LEVEL, columns_of
from data_prep.tables.distant_columns import Afar
from data_prep.tables.files import Kept
from data_prep.tables.label import known
from data_prep.tables.spec import TableSpec
from data_prep.tables.surveying import Survey, is_needed, numbers, survey
from data_prep.tables.values import (
    Changes,
    Filled,
    Gaps,
    Moments,
    Named,
    Piece,
    Places,
    Rounding,
    held_of,
    keys_of,
    line_of,
    read_moments,
    some,
    without_gaps,
)
from mpifl.common import InputError
from mpifl.data.shards import record_of


@dataclass(frozen=True)
class Encoded:
    """Some rows in numbers: features float32 [m, d], labels int64 [m]
    or values [m, ...], and the silo, id, group, place in order and split that each row names, if any.

    `row` is the number of each row in the table, counted from 0, int64 [m].
    """

    x: np.ndarray
    y: np.ndarray
    silo: Named
    id: list[str | None]
    group: Named
    order: np.ndarray
    held: np.ndarray
    row: np.ndarray


class Encoder:
    """What turns rows of a table into numbers: the levels, classes and statistics that all of its rows share.

    Args:
        kind: `csv` or `parquet`.
        path: The table that these are taken from where the spec does not state them.
        spec: What its columns mean.
        later: Take a spec whose columns are standardised by the rows that train: they are float64 here, NaN
            where the mean is to stand.
    """

    def __init__(self, kind: str, path: Path, spec: TableSpec, *, later: bool = False) -> None:
        if spec.standardise == "train" and not later:
            what = "standardise = 'train' is for partition, where it is known which rows train"
            raise InputError(f"{path}: {what}; say 'own', or name files of statistics")
        self.spec, self._path, self._kept = spec, path, Kept(kind, path, spec)
        found = survey(kind, path, spec, self._kept) if is_needed(spec) else Survey()
        self.columns = columns_of(spec, found)
        self._label = {
            spelling: label for label, each in enumerate(self.columns.classes) for spelling in each
        }
        self._codes = {name: self.columns.codes(name) for name in self.columns.levels}
        shared = spec.standardise if isinstance(spec.standardise, tuple) else None
        known = found.moments if shared is None else read_moments(shared)
        self._moments = {} if spec.standardise == "train" else known.columns
        self._check_moments(path)

    def learn(self, moments: Moments) -> dict[str, Any] | None:
        """Take the statistics of the rows that train, and return the encoding by them."""
        self._moments = moments.columns
        return self.record

    def read(self, path: Path, changes: Changes | None = None) -> Iterator[Encoded]:
        """Yield the rows of a table in numbers, piece by piece; what is done to them is counted."""
        changes = changes or Changes(self.spec)
        rounding, places, dropped = (
            Rounding(),
            Places(self.spec.order, self.spec.form_of_order),
            changes.dropped,
        )
        for piece in without_gaps(self._kept.again(path, dropped), self.spec, dropped):
            changes.look(piece)
            x = self._features(piece, rounding)
            ids = list(piece.columns[self.spec.id]) if self.spec.id is not None else []
            silos, groups = (
                keys_of(piece, what, getattr(self.spec, what), marked=self.spec.says_missing)
                for what in ("silo", "group")
            )
            order, held = places.of(piece), held_of(piece, self.spec.held_out)
            labels = self._labels(piece, rounding)
            more = {"order": order, "held": held, "row": piece.numbers_of_rows}
            yield Encoded(x, labels, silos, ids, groups, **more)
        rounding.check(str(path), self._remedies())

    def look_through(
        self, where: Path, seen: Mapping[str, tuple[float, float]] | None = None, *, force: bool = False
    ) -> list[str]:
        """Look through the table for a value that is missing, of which the spec says nothing. Return lines
        about values far from those of the training, and about those that are filled in.

        Args:
            where: The table.
            seen: Mean and deviation that columns had in the training, where the spec does not state them.
            force: Take columns that are too far from the training.

        Raises:
            InputError: a value is missing, or a column is too far from the training.
        """
        unsaid = [name for name, column in self.spec.features.items() if column.missing is None]
        numeric = {name: one for name, one in self.spec.features.items() if one.kind == "numeric"}
        moments = {name: both for name, both in (seen or {}).items() if name in numeric}
        moments |= {name: (one.mean, one.deviation) for name, one in numeric.items()
                 if one.mean is not None and one.deviation is not None}  # fmt: skip
        missing = {name: column.missing for name, column in self.spec.features.items()}
        afar, filled = (
            Afar(moments, "--spec takes a spec with the column's factor"),
            Filled(missing),
        )
        for piece in self._kept.first(Gaps()):
            for name in unsaid:
                if (texts := piece.columns[name]).lacking:
                    row = piece.at(int(np.argmax(texts.gaps)))
                    what = "is missing, and the model has learned from rows that have it"
                    raise InputError(f"{row}: {name} {what}; fill it in, or leave the row out")
            for name in moments:
                afar.look(name, numbers(piece, name, numeric[name]), functools.partial(line_of, piece))
            filled.look(piece)
        unknown = some([name for name in numeric if name not in moments])
        said = f"the unit of {unknown} was not looked at" if unknown else None
        far = [afar.told(where, force=force), said]
        return [*filter(None, far), *filled.told()]

    @property
    def record(self) -> dict[str, Any] | None:
        """Return the encoding for `federation.json`; None where something cannot be stated."""
        try:
            return record_of("table", spec=self.fitted())
        except InputError:
            return None

    def _remedies(self) -> dict[str, str]:
        """Say by column what to do about numbers that float32 cannot tell apart."""
        of_label = dict.fromkeys(self.spec.label.read, "use another unit, or count from another zero")
        unscaled = 'say standardise = "own", or use another unit'
        scaled = "correct what lies far from all others, or use another unit"
        return of_label | {name: scaled if self._scale(name)[2] else unscaled for name in self.spec.features}

    def fitted(self) -> dict[str, Any]:
        """Return the spec as its TOML file has it, with all stated that was learned of the table: by it, the
        rows of any other table become numbers as those of this one do.

        Raises:
            InputError: a column of categories has no value, or there is one class.
        """
        self._check_learned()
        told = self.spec.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        told.pop("standardise", None)
        told |= {"missing": list(self.spec.missing)} if self.spec.says_missing else {}
        if self.columns.classes:
            told["classes"] = [one[0] if len(one) == 1 else list(one) for one in self.columns.classes]
        return {**told, "features": {name: self._fitted(name) for name in self.spec.features}}

    def _fitted(self, name: str) -> dict[str, Any]:
        column = self.spec.features[name]
        told = column.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        if not column.counted:
            stated = [one[0] if len(one) == 1 else list(one) for one in column.levels or ()]
            return {**told, "levels": stated or self._own_levels(name)}
        mean, deviation, wanted = self._scale(name)
        learned = {"mean": mean, "deviation": deviation} if wanted else {"mean": mean}
        return {**told, **(learned if wanted or column.missing == "mean" else {})}

    def _own_levels(self, name: str) -> list[str]:
        """Return the levels of a column but for the one of a missing value."""
        levels = self.columns.levels[name]
        return list(levels[:-1] if self.spec.features[name].missing == "level" else levels)

    def _features(self, piece: Piece, rounding: Rounding) -> np.ndarray:
        """Encode all columns, float32 [m, d]."""
        later = self.spec.fitted_later
        with np.errstate(over="ignore"):
            columns = [self._encoded(piece, name, rounding) for name in self.spec.features]
            x = np.concatenate(columns, axis=1, dtype=np.float64 if later else np.float32)
        if len(wrong := np.argwhere(np.isinf(x) if later else ~np.isfinite(x))):
            row, name = wrong[0, 0], self.columns.feature_names[wrong[0, 1]]
            said = f"{name} is '{piece.columns[name][row]}', as a feature too large for float32"
            raise InputError(f"{piece.at(row)}: {said}; use another unit")
        return x

    def _encoded(self, piece: Piece, name: str, rounding: Rounding) -> np.ndarray:
        """Encode one column, float64 [m, 1 or levels]."""
        column = self.spec.features[name]
        if column.counted:
            filled = self._filled(name, numbers(piece, name, column))
            values = self._standardised(name, filled)
            if name not in self.spec.fitted_later:
                rounding.add(name, filled, values)
            return values[:, None]
        levels = self.columns.levels[name]
        stand_in = MISSING_LEVEL if column.missing == "level" else str(column.constant)
        texts, known = piece.columns[name], self._codes[name]
        codes = texts.each(lambda text: known.get(text, -1), known.get(stand_in, -1), np.int64)
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            value = stand_in if texts[row] is None else texts[row]
            raise InputError(f"{piece.at(row)}: {name} is '{value}'; its levels are {some(levels)}")
        return codes[:, None] if column.encoding == "ordinal" else np.eye(len(levels))[codes]

    def _filled(self, name: str, values: np.ndarray) -> np.ndarray:
        column = self.spec.features[name]
        if column.missing == "mean" and name in self.spec.fitted_later:
            return values
        stand_in = self._scale(name)[0] if column.missing == "mean" else column.stand_in
        return values if stand_in is None else np.nan_to_num(values, nan=stand_in)

    def _standardised(self, name: str, filled: np.ndarray) -> np.ndarray:
        mean, deviation, wanted = self._scale(name)
        return (filled - mean) / deviation if wanted else filled

    def _scale(self, name: str) -> tuple[float, float, bool]:
        """Return mean and deviation of a column of numbers, and whether it is brought to 0 and 1."""
        column, moments = self.spec.features[name], self._moments.get(name)
        mean = column.mean if column.mean is not None else moments.mean if moments else 0.0
        deviation = column.deviation or (moments.deviation if moments else 1.0)
        wanted = self.spec.standardise != "none" and (moments is not None or self.spec.standardise != "train")
        return mean, deviation, wanted or column.deviation is not None

    def _labels(self, piece: Piece, rounding: Rounding) -> np.ndarray:
        if self.spec.label.kind != "categorical":
            return self.spec.label.values(piece, rounding)
        (name,), threshold = self.spec.label.read, self.spec.threshold
        known(piece, name)
        if threshold is not None:
            return (piece.numbers(name) > threshold).astype(np.int64)
        texts = piece.columns[name]
        codes = texts.each(lambda text: self._label.get(text, -1), -1, np.int64)
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            what = f"{name} is '{texts[row]}', an unknown class"
            raise InputError(f"{piece.at(row)}: {what}; there are {some(self.columns.class_names or ())}")
        return codes

    def _check_learned(self) -> None:
        """See that what was learned of the table can be stated."""
        if empty := [name for name in self.columns.levels if not self._own_levels(name)]:
            what = f"column '{empty[0]}' has no value in any row that counts"
            raise InputError(f"{self._path}: {what}; leave it out of [features], or state its levels")
        if len(classes := self.columns.classes) == 1:
            what = f"the label is '{classes[0][0]}' in every row; there must be 2 classes"
            raise InputError(f"{self._path}: {what}; state them in the spec, as classes = ['a', 'b']")

    def _check_moments(self, path: Path) -> None:
        """See that there are statistics for every column that needs them."""
        for name, column in self.spec.features.items():
            stated = column.mean is not None and column.deviation is not None
            shared = isinstance(self.spec.standardise, tuple) and column.counted
            if shared and not stated and not (name in self._moments and self._moments[name].count):
                raise InputError(
                    f"{path}: the statistics that 'standardise' names lack column '{name}'; make them again"
                )
