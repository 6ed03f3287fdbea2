"""What the columns of a table become: features and classes by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from data_prep.tables.spec import TableSpec
from data_prep.tables.surveying import Survey
from data_prep.tables.table_column import Column
from data_prep.tables.values import ordered
from mpifl.common import InputError

MISSING_LEVEL = "missing"


@dataclass(frozen=True)
class Columns:
    """What all rows of a table share.

    Attributes:
        spec: What its columns mean.
        levels: The levels of every categorical column, in their order.
        classes: The spellings of every class; none where the label is no category, or has a threshold.
    """

    spec: TableSpec
    levels: dict[str, tuple[str, ...]]
    classes: tuple[tuple[str, ...], ...]

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Return the classes' names, of a threshold what it says; None of values."""
        if self.spec.label.kind != "categorical":
            return None
        if (threshold := self.spec.threshold) is not None:
            return f"<= {threshold:g}", f"> {threshold:g}"
        return tuple(each[0] for each in self.classes)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the names of the d features, `column=level` for those of a one-hot column."""
        return tuple(name for column in self.spec.features for name in self._names(column))

    def codes(self, name: str) -> dict[str, int]:
        """Return the number of every level of a column, by each of its spellings."""
        stated = self.spec.features[name].levels or ()
        spelled = {spelling: number for number, one in enumerate(stated) for spelling in one}
        return {level: number for number, level in enumerate(self.levels[name])} | spelled

    def _names(self, name: str) -> list[str]:
        one_hot = self.spec.features[name].encoding == "one-hot"
        levels = self.levels.get(name)
        return [f"{name}={level}" for level in levels] if levels and one_hot else [name]


def columns_of(spec: TableSpec, found: Survey) -> Columns:
    """Return what columns become, by a spec and what occurs in a table where the spec leaves it to that."""
    levels = {
        name: _levels(name, column, found.levels.get(name, set()))
        for name, column in spec.features.items()
        if column.kind == "categorical"
    }
    return Columns(spec, levels, spec.classes or tuple((label,) for label in ordered(found.classes)))


def check_label(path: Path, spec: TableSpec) -> None:
    """Refuse a spec without a label where there must be one."""
    if spec.label.kind == "none":
        raise InputError(f"{path}: label: not given; write label = 'COLUMN', what is to be learned")


def stated_columns(path: Path, spec: TableSpec) -> Columns:
    """Return what columns become by a spec alone; refuse one, read from `path`, that leaves it to a table."""
    without = "sites that agree without data must state them"
    check_label(path, spec)
    for name, column in spec.features.items():
        if column.kind == "categorical" and not column.levels:
            raise InputError(f"{path}: features.{name}.levels: not stated; {without}, as levels = ['a', 'b']")
    if spec.open_classes:
        raise InputError(f"{path}: classes: not stated; {without}, as classes = ['a', 'b'], or a threshold")
    return columns_of(spec, Survey())


def _levels(name: str, column: Column, found: set[str]) -> tuple[str, ...]:
    """Return a column's levels: those stated or else those that occur,
    and what stands for a missing value."""
    occurring = found | {str(column.constant)} if column.missing == "constant" else found
    levels = tuple(one[0] for one in column.levels) if column.levels else tuple(ordered(occurring))
    if column.missing != "level":
        return levels
    if MISSING_LEVEL in levels:
        clash = f"has the value '{MISSING_LEVEL}', which the level of a missing one is called"
        raise InputError(f"column '{name}' {clash}; list it in 'missing' of the spec, or spell it otherwise")
    return (*levels, MISSING_LEVEL)
