"""The small TOML file that says what the columns of a table mean."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from data_prep.tables.files import check_encoding
from data_prep.tables.label import Label
from data_prep.tables.table_column import Column, Spelled, Strict, as_spellings
from data_prep.tables.values import Notation, is_form, no_form
from mpifl.common import InputError, by_weight, closed, hint_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


WHOLE = re.compile(r"([+-]?[0-9]+)(?:[.,]0*)?")
"""A whole number, and the zeros behind its point."""
MOST_BYTES = 1 << 20
"""Bytes of a spec: tens of thousands of columns."""


class TableSpec(Strict):
    """What the columns of a table mean.

    Attributes:
        label: The column of labels, which are categories; or a table that says what is learned (`Label`).
            Without it the table has none: another party has them (`mpifl align`).
        features: The feature columns in the order they are to have; `name = "numeric"` is short for a kind
            alone.
        classes: The label's values, each one or a list of spellings, in the order of their numbers; those
            that occur, sorted, if neither they nor a threshold are stated.
        threshold: In place of classes: the label is a number, and class 1 is above this, class 0 is not.
        silo: The column of natural silos.
        id: The column of ids, which shards keep, as text. By it parties find the persons that they have in
            common (`mpifl align`), whose shards have no ids.
        group: The column that says whose a row is: rows of one stay together, in one split of one silo.
        order: A column of numbers or dates, by which the last rows can be held out.
        order_format: How that column writes days, as "%d.%m.%Y"; as 2000-12-31 where it is not stated.
        held_out: A column that says whether a row is for testing: 1 or 0, true or false, test or train.
        missing: What stands for a missing value; a null of Parquet always does.
        standardise: Bring numeric columns to mean 0 and deviation 1: not at all, by the table's own
            statistics, by those of the rows that train, or by those in files that silos made of theirs. The
            table's own are of all its rows, those that silos hold out of it later included. The files hold
            counts, sums and sums of squares, which are added up.
        delimiter: csv: what separates values; not stated, that of "," ";" tab and "|" by which a file's first
            line names the columns, for each file.
        encoding: csv: how characters are written, by Python's name of it: cp1252, utf-16.
        decimal: csv: what stands before the fraction of a number.
        thousands: csv: what parts groups of three digits; " " is a blank of any kind.
        names: csv: the columns' names, for a file without a header line.
        comment: csv: lines that begin with this are skipped.
    """

    label: Label = Label(kind="none")
    features: dict[str, Column]
    classes: tuple[Spelled, ...] | None = Field(None, min_length=2)
    threshold: float | None = None
    silo: str | None = None
    id: str | None = None
    group: str | None = None
    order: str | None = None
    order_format: str | None = None
    held_out: str | None = None
    missing: tuple[str, ...] = ("",)
    standardise: Literal["none", "own", "train"] | tuple[Path, ...] = "none"
    delimiter: str | None = Field(None, min_length=1, max_length=1)
    encoding: str = "utf-8"
    decimal: Literal[".", ","] = "."
    thousands: Literal[".", ",", " ", "'"] | None = None
    names: tuple[str, ...] | None = None
    comment: str | None = None

    @field_validator("label", mode="before")
    @classmethod
    def _column_alone(cls, label: Any) -> Any:
        if inside := [key for key in ("classes", "threshold") if isinstance(label, dict) and key in label]:
            raise ValueError(f"{inside[0]} stands beside label, on a line of its own, and not in it")
        return {"column": label} if isinstance(label, str) else label

    @field_validator("features", mode="before")
    @classmethod
    def _kind_alone(cls, features: Any) -> Any:
        if not isinstance(features, dict):
            return features
        if not features:
            raise ValueError('there is no column; name one that is a feature, as age = "numeric"')
        return {
            name: {"kind": column} if isinstance(column, str) else column for name, column in features.items()
        }

    _one_spelling = field_validator("classes", mode="before")(as_spellings)

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, encoding: str) -> str:
        check_encoding(encoding)
        return encoding

    @model_validator(mode="after")
    def _label_is_no_feature(self) -> TableSpec:
        if learned := [name for name in self.label.read if name in self.features]:
            raise ValueError(f"'{learned[0]}' is the label; remove it from [features]")
        if self.id is not None and self.id in (*self.features, *self.label.read):
            raise ValueError(
                f"'{self.id}' is the id, which no model may learn from; it is neither a feature nor the label"
            )
        for key in ("group", "held_out"):
            name = getattr(self, key)
            if name is not None and name in (*self.features, *self.label.read):
                what = f"'{name}' is {key}, which no model may learn from"
                raise ValueError(f"{what}; it is neither a feature nor the label")
        if self.order is not None and self.order in self.label.read:
            raise ValueError(f"'{self.order}' is the order, and the label; use another")
        self._check_order_format()
        read = [self.in_file(name) for name in self.columns]
        if twice := [name for name in self.features if read.count(self.in_file(name)) > 1]:
            what = f"'{twice[0]}' and another are both the file's column '{self.in_file(twice[0])}'"
            raise ValueError(f"{what}; a column is read once, see rename")
        for name in self.features if self.standardise == "train" else ():
            if (self.features[name].mean is None) != (self.features[name].deviation is None):
                raise ValueError(f"'{name}' has one of mean and deviation; 'train' takes both, or none")
        if self.thousands == self.decimal:
            raise ValueError(f"decimal and thousands are both '{self.decimal}'; they must differ")
        if self.classes and self.threshold is not None:
            raise ValueError("classes and threshold exclude each other")
        spellings = [spelling for each in self.classes or () for spelling in each]
        if len(set(spellings)) != len(spellings):
            raise ValueError("a class, or one of its spellings, is stated twice")
        for what, marked in self._marked():
            raise ValueError(f"'{marked}' is {what}, and in 'missing'; remove it from one of them")
        if self.label.kind != "categorical" and (self.classes or self.threshold is not None):
            raise ValueError(
                f"classes and threshold are for a categorical label, not kind = '{self.label.kind}'"
            )
        return self

    def _check_order_format(self) -> None:
        """Refuse a form of dates without a column of the order, one that is none, or a second one."""
        if self.order_format is None:
            return
        if not is_form(self.order_format):
            raise ValueError(f"order_format {no_form(self.order_format)}")
        if self.order is None:
            raise ValueError("order_format is for the column that 'order' names; name it, too")
        if self.order in self.features and self.features[self.order].format != self.order_format:
            raise ValueError(f"'{self.order}' is a feature; state its format there, in place of order_format")

    def _marked(self) -> Iterator[tuple[str, str]]:
        """Yield what is stated as a value of a category, and stands for a missing one."""
        stated = {"a class": self.classes} | {f"a level of '{k}'": c.levels for k, c in self.features.items()}
        for what, values in stated.items():
            spellings = [spelling for each in values or () for spelling in each]
            yield from ((what, one) for one in spellings if one in self.marks)

    @property
    def dropping(self) -> list[str]:
        """Return the columns without a value of which a row is left out."""
        of_label = self.label.read if self.label.missing == "drop" else ()
        return [*(name for name, column in self.features.items() if column.missing == "drop"), *of_label]

    @property
    def marks(self) -> tuple[str, ...]:
        """Return what stands for a missing value. A whole number does with up to 6 zeros behind its point,
        too: programs write -9 as -9.0."""
        whole = [found[1] for found in map(WHOLE.fullmatch, self.missing) if found]
        points = dict.fromkeys([".", self.decimal])
        written = [f"{one}{point}{'0' * n}" for one in whole for point in points for n in range(1, 7)]
        return tuple(dict.fromkeys([*self.missing, *whole, *written]))

    @property
    def says_missing(self) -> bool:
        """Tell whether the spec says what stands for a missing value."""
        return "missing" in self.model_fields_set

    @property
    def notation(self) -> Notation:
        """Return how a CSV table writes numbers."""
        return Notation(self.decimal, self.thousands or "")

    @property
    def open_classes(self) -> bool:
        """Tell whether the classes are those that occur in a table."""
        return self.label.kind == "categorical" and self.classes is None and self.threshold is None

    @property
    def fitted_later(self) -> list[str]:
        """Return the columns that are standardised by the rows that train, once these are known."""
        named = self.features.items() if self.standardise == "train" else ()
        return [name for name, column in named if column.counted and column.deviation is None]

    @property
    def statistics(self) -> tuple[Path, ...]:
        """Return the files of silos' statistics that numeric columns are standardised by."""
        return self.standardise if isinstance(self.standardise, tuple) else ()

    @property
    def columns(self) -> list[str]:
        """Return the names of all columns that are read."""
        others = (self.silo, self.id, self.group, self.order, self.held_out)
        named = [name for name in others if name is not None]
        return list(dict.fromkeys([*self.features, *self.label.read, *named]))

    @property
    def form_of_order(self) -> str | None:
        """Return how the column of the order writes dates, where that is stated."""
        column = self.features.get(self.order or "")
        return column.format if column else self.order_format

    def in_file(self, name: str) -> str:
        """Return what a column is called in the file."""
        column = self.features.get(name)
        return (column.rename if column else None) or name

    def by(self, **columns: str) -> TableSpec:
        """Return the same with another column as its id, group or order; raise InputError if it cannot be."""
        told = {**self.model_dump(exclude_unset=True), **columns}
        if told.get("order") != self.order:
            told.pop("order_format", None)  # it is of the spec's own column
        try:
            return TableSpec.model_validate(told)
        except ValidationError as error:
            said = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise InputError(f"--{next(iter(columns))}: {said}") from None


def _texts(told: Any) -> Iterator[str]:
    """Yield all texts of a TOML file, the names of keys included."""
    if isinstance(told, str):
        yield told
    elif isinstance(told, (dict, list)):
        several = [*told, *told.values()] if isinstance(told, dict) else told
        for one in several:
            yield from _texts(one)


def read_spec(path: Path) -> TableSpec:
    """Read a table spec; paths in it are relative to its folder.
    Raise InputError with the key that is wrong."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise InputError(f"{path}: {size:,} bytes; a table spec has at most {MOST_BYTES:,}")
        told = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        if any("\0" in text for text in _texts(told)):
            raise InputError(f"{path}: has a NUL character, which no name may have; remove it")
        spec = TableSpec.model_validate(told)
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise InputError(
            f"{path}: {what}; name the TOML file that says what columns mean "
            "(align: --spec; else --option spec=FILE or --table)"
        ) from None
    except ValidationError as error:
        first = by_weight(error.errors())[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        said = f"{first['msg'].removeprefix('Value error, ')}{closed(hint_of(TableSpec, first))}"
        raise InputError(
            f"{path}: {where}: {said}; 'data-prep draft' writes a spec that shows the keys"
        ) from None
    except (ValueError, RecursionError) as error:  # tomllib's, also for numbers of thousands of digits
        raise InputError(f"{path}: not TOML ({error}); write KEY = VALUE lines") from None
    if isinstance(spec.standardise, tuple):
        spec = spec.model_copy(update={"standardise": tuple(path.parent / file for file in spec.standardise)})
    return spec
