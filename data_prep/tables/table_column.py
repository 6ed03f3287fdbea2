"""What one column of a table holds, as its spec says it."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from data_prep.tables.values import days_of, is_form, no_form


class Strict(BaseModel):
    """A record of a spec, which has no other keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Spelled = Annotated[tuple[str, ...], Field(min_length=1)]
"""A value of a category, by all its spellings; it is called by the first."""


def as_spellings(values: Any) -> Any:
    """Return values of which some have one spelling alone, by their spellings."""
    one = isinstance(values, (list, tuple))
    return [[each] if isinstance(each, str) else each for each in values] if one else values


class Column(Strict):
    """What one feature column holds and how it becomes numbers.

    Attributes:
        kind: Numbers, values out of a few, or dates, which become days since a date.
        encoding: categorical: a column of zeros and ones for each level, or the level's number.
        levels: categorical: the values there may be, each one or a list of spellings, in their order; those
            that occur, sorted, if not stated. Silos that are to understand each other must state them.
        missing: What becomes of a missing value: its row is left out, it is the mean (numeric, date), the
            `constant`, or a level of its own, the last one (categorical). Not stated, it is refused.
        constant: What stands for a missing value with `missing = "constant"`: a number, (categorical) a
            level, which need not occur, or a date.
        mean: numeric, date: a known mean; goes before what the table or the statistics of silos say.
        deviation: numeric, date: a known standard deviation, likewise.
        since: date: the day that is 0, as "2000-01-01".
        format: date: how the file writes days, with %d, %m and %Y once each and one mark between, as
            "%d.%m.%Y"; a time of day may follow. Not stated, it is "%Y-%m-%d", as a constant is in any case.
        factor: numeric: what the file's values are multiplied by, so that all sites have one unit. Means,
            deviations and the constant are in that unit.
        rename: The column's name in the file, if it is another.
    """

    kind: Literal["numeric", "categorical", "date"]
    encoding: Literal["one-hot", "ordinal"] = "one-hot"
    levels: tuple[Spelled, ...] | None = Field(None, min_length=1)
    missing: Literal["drop", "mean", "constant", "level"] | None = None
    constant: float | str | None = None
    mean: float | None = None
    deviation: float | None = Field(None, gt=0)
    since: date | None = None
    format: str | None = None
    factor: float | None = Field(None, gt=0)
    rename: str | None = Field(None, min_length=1)

    _one_spelling = field_validator("levels", mode="before")(as_spellings)

    @field_validator("since", mode="before")
    @classmethod
    def _day(cls, since: Any) -> Any:
        if (isinstance(since, str) and np.isnan(days_of(since, date.min))) or isinstance(since, (int, float)):
            raise ValueError(f"'{since}' is not a date; write it as '2000-01-01'")
        return since

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Column:
        if self.counted and (self.levels or self.missing == "level" or self.encoding == "ordinal"):
            raise ValueError("levels and encodings are for kind = 'categorical'")
        if self.kind == "categorical" and (self.missing == "mean" or self.mean is not None or self.deviation):
            raise ValueError("means and deviations are for kind = 'numeric' or 'date'")
        if (self.kind == "date") != (self.since is not None):
            raise ValueError("kind = 'date' and since = 'YYYY-MM-DD', the day that is 0, go together")
        if self.format is not None and self.kind != "date":
            raise ValueError("a format is for kind = 'date'")
        if self.format is not None and not is_form(self.format):
            raise ValueError(f"format {no_form(self.format)}")
        if self.factor is not None and self.kind != "numeric":
            raise ValueError("a factor is for kind = 'numeric'")
        if (self.missing == "constant") != (self.constant is not None):
            raise ValueError("missing = 'constant' and constant = VALUE go together")
        if self.kind == "numeric" and isinstance(self.constant, str):
            raise ValueError("the constant of a numeric column must be a number")
        if self.kind == "categorical" and isinstance(self.constant, float):
            raise ValueError(f"the constant of a categorical column must be text, as '{self.constant:g}'")
        spellings = [spelling for each in self.levels or () for spelling in each]
        if self.levels and self.constant is not None and self.constant not in spellings:
            raise ValueError(f"the constant '{self.constant}' is not one of the levels")
        if len(set(spellings)) != len(spellings):
            raise ValueError("a level, or one of its spellings, is stated twice")
        if self.since and self.constant is not None and np.isnan(days_of(str(self.constant), self.since)):
            raise ValueError(f"the constant '{self.constant}' is not a date; write it as '2000-01-01'")
        return self

    @property
    def counted(self) -> bool:
        """Tell whether the column is one number for each row, with a mean."""
        return self.kind != "categorical"

    @property
    def stand_in(self) -> float | None:
        """Return the number that stands for a missing one, if the spec says it."""
        if self.constant is None:
            return None
        return days_of(str(self.constant), self.since) if self.since else float(self.constant)
