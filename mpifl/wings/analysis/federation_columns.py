"""The columns of a federation that are described: features, then targets as classes or values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mpifl.common import InputError
from mpifl.data import Features, Targets
from mpifl.data.shards import AnySpec, FederationSpec, encoding_of
from mpifl.silo import Silo
from mpifl.wings.analysis import exact_products as exact

OWN_SPLITS = ("train", "valid", "test")
"""The splits of a silo: all its rows are described."""
OUTCOME = "outcome"
MOST_CLASSES = 1000
ROUNDED = 2.0**-22
"""What a float32 may be off by rounding, and more."""
LEAST = 2.0**-126
"""The least float32 that has all digits."""


class Unit(NamedTuple):
    """What a number of the shards stands for: number * deviation + mean."""

    mean: float = 0.0
    deviation: float = 1.0

    def of(self, number: float) -> float:
        """Return a number in this unit, with the 7 digits that a float32 has."""
        if self == Unit():
            return number
        return float(f"{number * self.deviation + self.mean:.7g}")

    def stored(self, edge: float) -> float:
        """Return an edge in this unit as a number of the shards, and a little lower. So what was equal to it
        is not below it, however the shards have rounded that."""
        found = (edge - self.mean) / self.deviation
        return edge if self == Unit() else found - abs(found) * ROUNDED

    def tells(self, lower: float, upper: float, step: float) -> bool:
        """Return whether the shards tell numbers in this unit apart that lie between bounds and differ by a
        step. Where the bounds lie far from the mean, float32 has too few digits for that."""
        far = max(abs(lower - self.mean), abs(upper - self.mean), self.deviation * LEAST)
        return self == Unit() or far * ROUNDED < step / 2


@dataclass(frozen=True)
class FederationColumns:
    """The columns of a federation.

    Attributes:
        names: Their names.
        features: How many of them are features.
        groups: For each variable that is columns of zeros and ones, the names of its levels by column.
        units: The units of standardised columns, by column.
        filled: How many missing values were filled, by column, where the shards know it.
        by_mean: The columns whose gaps get the mean of other rows, as far as the shards know it.
        classes: How many classes the outcome has; 0 if it is values.
        since: The day that is 0, by column of dates.
    """

    names: Sequence[str]
    features: int
    groups: Mapping[str, Mapping[int, str]]
    units: Mapping[int, Unit]
    filled: Mapping[int, int]
    by_mean: Collection[int]
    classes: int
    since: Mapping[int, str]

    @classmethod
    def of(cls, spec: FederationSpec, algorithm: str) -> FederationColumns:
        """Return the columns of a federation for an algorithm. An array that is no table is one column.

        Raises:
            InputError: examples have several arrays, or unequal lengths, or there are too many classes.
        """
        x, y = spec.features, spec.targets
        if not isinstance(x, Features) or x.ragged or isinstance(y, dict) or (y and y.ragged):
            what = "describes one array of features and one of targets, which are as long in each example"
            raise InputError(f"[algorithm] name = '{algorithm}': {what}; these shards have others")
        if (spec.classes or 0) > MOST_CLASSES:
            what = f"describes up to {MOST_CLASSES:,} classes, and there are {spec.classes:,}"
            raise InputError(f"[algorithm] name = '{algorithm}': {what}; use shards with fewer")
        table = [f"x{nth}" for nth in range(x.shape[0])] if len(x.shape) == 1 else []
        features = [*((table and spec.feature_names) or table or ["x"])]
        groups, classes = levels_of(features), spec.classes or 0
        label = str(_table(_encoded(spec).get("label")).get("column", OUTCOME))
        names = (f"{OUTCOME} " * nth + label for nth in range(len(groups) + 1))
        label = next(name for name in names if name not in groups)  # a category of features keeps its name
        if classes:
            called = spec.class_names or [str(nth) for nth in range(classes)]
            groups[label] = {len(features) + nth: name for nth, name in enumerate(called)}
            outcome = [f"{label}={name}" for name in called]
        else:
            outcome = _values(y, label)
        units, filled = told_of(spec, features)
        by_mean = filled_by_mean(spec, features)
        told = groups, units, filled, by_mean, classes
        return cls([*features, *outcome], len(features), *told, since=dates_of(spec, features))

    def unit(self, column: int) -> Unit:
        """Return the unit of a column."""
        return self.units.get(column, Unit())

    def of_silo(self, silo: Silo) -> Iterator[tuple[int, Tensor]]:
        """Yield the numbers of a silo in blocks: the first of their columns, and float32 of shape [n, c]; n
        is `exact.BLOCK` at most."""
        for split in filter(silo.has, OWN_SPLITS):
            for x, y in silo.split(split).in_order(exact.BLOCK, shared=True):
                features = x.float().reshape(-1, self.features)
                for first, numbers in ((0, features), (self.features, self._outcome(y))):
                    yield from ((first, block) for block in numbers.split(exact.BLOCK))

    def _outcome(self, y: Tensor) -> Tensor:
        if self.classes:
            return (y.reshape(-1, 1) == torch.arange(self.classes)).float()
        return y.float().reshape(-1, len(self.names) - self.features)


def _values(y: Targets | None, label: str) -> list[str]:
    """Return the names of targets that are values: of a row for each example, those of its columns."""
    assert y is not None, "targets without classes are described"
    if len(y.shape) != 1:
        return [label]
    return [*(y.names or [f"{label} {nth}" for nth in range(y.shape[0])])]


def levels_of(names: Sequence[str]) -> dict[str, Mapping[int, str]]:
    """Return the columns `variable=level` of each variable, and their levels."""
    found: dict[str, dict[int, str]] = {}
    for nth, name in enumerate(names):
        variable, is_level, level = name.partition("=")
        if is_level:
            found.setdefault(variable, {})[nth] = level
    return {**found}


def told_of(spec: AnySpec, names: Sequence[str]) -> tuple[dict[int, Unit], dict[int, int]]:
    """Return what the shards tell of how they were made: units of standardised columns, and filled gaps."""
    columns = _encoded(spec).get("features")
    gaps = _table(spec.source.get("filled")).get("columns")
    units, filled = dict[int, Unit](), dict[int, int]()
    for nth, name in enumerate(names):
        of, hows = _table(_table(columns).get(name)), _table(_table(gaps).get(name))
        if all(_is_number(of.get(key)) for key in Unit._fields) and of["deviation"] > 0:
            units[nth] = Unit(of["mean"], of["deviation"])
        if hows and all(isinstance(count, int) for count in hows.values()):
            filled[nth] = sum(hows.values())
    return units, filled


def dates_of(spec: AnySpec, names: Sequence[str]) -> dict[int, str]:
    """Return the day that is 0, as 2020-01-01, by column of dates."""
    columns = _table(_encoded(spec).get("features"))
    since = (_table(columns.get(name)).get("since") for name in names)
    return {nth: one for nth, one in enumerate(since) if isinstance(one, str)}


def filled_by_mean(spec: AnySpec, names: Sequence[str]) -> set[int]:
    """Return the columns whose gaps get the mean of other rows: by their rule, with or without gaps."""
    columns, gaps = (
        _table(_encoded(spec).get("features")),
        _table(_table(spec.source.get("filled")).get("columns")),
    )
    return {
        nth
        for nth, name in enumerate(names)
        if _table(columns.get(name)).get("missing") == "mean" or "the mean" in _table(gaps.get(name))
    }


def _encoded(spec: AnySpec) -> Mapping[str, Any]:
    """Return the spec of a table by which the shards were made; {} where they do not tell it."""
    return _table(_table(encoding_of(spec.source)).get("spec"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _table(value: Any) -> Mapping[str, Any]:
    """Return a value that others have written if it is a table; else an empty one."""
    return value if isinstance(value, Mapping) else {}
