"""The small TOML file that says what the columns of a table mean."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mpifl.common import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


MOST_BYTES = 1 << 20
"""Bytes of a spec: tens of thousands of columns."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Column(_Strict):
    """What one feature column holds and how it becomes numbers.

    Attributes:
        kind: Numbers, or values out of a few.
        encoding: categorical: a column of zeros and ones for each level, or the level's number.
        levels: categorical: the values there may be, in their order; those that occur, sorted, if not stated.
            Silos that are to understand each other must state them.
        missing: What becomes of a missing value: its row is left out, it is the mean (numeric), the
            `constant`, or a level of its own, the last one (categorical).
        constant: What stands for a missing value with `missing = "constant"`: a number, or (categorical) a
            level, which need not occur.
        mean: numeric: a known mean; goes before what the table or the statistics of silos say.
        deviation: numeric: a known standard deviation, likewise.
    """

    kind: Literal["numeric", "categorical"]
    encoding: Literal["one-hot", "ordinal"] = "one-hot"
    levels: tuple[str, ...] | None = Field(None, min_length=1)
    missing: Literal["drop", "mean", "constant", "level"] = "drop"
    constant: float | str | None = None
    mean: float | None = None
    deviation: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Column:
        if self.kind == "numeric" and (self.levels or self.missing == "level" or self.encoding == "ordinal"):
            raise ValueError("levels and encodings are for kind = 'categorical'")
        if self.kind == "categorical" and (self.missing == "mean" or self.mean is not None or self.deviation):
            raise ValueError("means and deviations are for kind = 'numeric'")
        if (self.missing == "constant") != (self.constant is not None):
            raise ValueError("missing = 'constant' and constant = VALUE go together")
        if self.kind == "numeric" and isinstance(self.constant, str):
            raise ValueError("the constant of a numeric column must be a number")
        if self.kind == "categorical" and isinstance(self.constant, float):
            raise ValueError(f"the constant of a categorical column must be text, as '{self.constant:g}'")
        if self.levels and self.constant is not None and self.constant not in self.levels:
            raise ValueError(f"the constant '{self.constant}' is none of the levels")
        return self


class TableSpec(_Strict):
    """What the columns of a table mean.

    Attributes:
        label: The column of labels.
        features: The feature columns in the order they are to have; `name = "numeric"` is short for a kind
            alone.
        classes: The label's values, each one or a list of spellings, in the order of their numbers; those
            that occur, sorted, if neither they nor a threshold are stated.
        threshold: In place of classes: the label is a number, and class 1 is above this, class 0 is not.
        silo: The column of natural silos.
        missing: What stands for a missing value; a null of Parquet always does.
        standardise: Bring numeric columns to mean 0 and deviation 1: not at all, by the table's own
            statistics, or by those in files that silos made of theirs. The table's own are of all its rows,
            those that silos hold out of it later included. The files hold counts, sums and sums of squares,
            which are added up.
        delimiter: csv: what separates values.
        names: csv: the columns' names, for a file without a header line.
        comment: csv: lines that begin with this are skipped.
    """

    label: str
    features: dict[str, Column] = Field(min_length=1)
    classes: tuple[tuple[str, ...], ...] | None = Field(None, min_length=2)
    threshold: float | None = None
    silo: str | None = None
    missing: tuple[str, ...] = ("",)
    standardise: Literal["none", "own"] | tuple[Path, ...] = "none"
    delimiter: str = Field(",", min_length=1, max_length=1)
    names: tuple[str, ...] | None = None
    comment: str | None = None

    @field_validator("features", mode="before")
    @classmethod
    def _kind_alone(cls, features: Any) -> Any:
        if not isinstance(features, dict):
            return features
        return {
            name: {"kind": column} if isinstance(column, str) else column for name, column in features.items()
        }

    @field_validator("classes", mode="before")
    @classmethod
    def _one_spelling(cls, classes: Any) -> Any:
        return (
            [[each] if isinstance(each, str) else each for each in classes]
            if isinstance(classes, list)
            else classes
        )

    @model_validator(mode="after")
    def _label_is_no_feature(self) -> TableSpec:
        if self.label in self.features:
            raise ValueError(f"'{self.label}' is the label; take it out of [features]")
        if self.classes and self.threshold is not None:
            raise ValueError("classes and threshold exclude each other")
        return self

    @property
    def dropping(self) -> list[str]:
        """Return the columns without a value of which a row is left out."""
        return [name for name, column in self.features.items() if column.missing == "drop"]

    @property
    def statistics(self) -> tuple[Path, ...]:
        """Return the files of silos' statistics that numeric columns are standardised by."""
        return self.standardise if isinstance(self.standardise, tuple) else ()

    @property
    def columns(self) -> list[str]:
        """Return the names of all columns that are read."""
        return list(dict.fromkeys([*self.features, self.label, *([self.silo] if self.silo else [])]))


def read_spec(path: Path) -> TableSpec:
    """Read a table spec; paths in it are relative to its folder.
    Raise InputError with the key that is wrong."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise InputError(f"{path}: {size:,} bytes; a table spec has at most {MOST_BYTES:,}")
        spec = TableSpec.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise InputError(
            f"{path}: {what}; --option spec=FILE names the TOML file that says what columns mean"
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputError(
            f"{path}: {where}: {first['msg']}; see docs/howto/data.md for what a table spec holds"
        ) from None
    except (ValueError, RecursionError) as error:  # tomllib's, also for numbers of thousands of digits
        raise InputError(f"{path}: not TOML ({error}); write KEY = VALUE lines") from None
    if isinstance(spec.standardise, tuple):
        spec = spec.model_copy(update={"standardise": tuple(path.parent / file for file in spec.standardise)})
    return spec
