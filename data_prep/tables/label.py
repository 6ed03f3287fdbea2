"""What is learned of a table: a category, numbers, several labels, or the time of an event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from data_prep.dataset import negative_first
from data_prep.tables.guessing import quoted
from data_prep.tables.values import AS_NUMBERS, Piece, Rounding, meaning, ordered, some
from mpifl.common import InputError
from mpifl.data import Targets, check_times

EVENTS = {"0", "1", "0.0", "1.0", "true", "false"}
"""How a column of events that were seen or not is written."""
TAKES = {
    "categorical": ("column",),
    "numeric": ("column", "columns"),
    "multilabel": ("columns",),
    "survival": ("time", "event"),
    "none": (),
}
"""The keys that name the columns of each kind; of `numeric`, one of them."""


class EventMark(BaseModel):
    """The column that says whether an event was seen, and the value that says so; all others say no.

    Attributes:
        value: A text or a number.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    column: str
    value: str


class Label(BaseModel):
    """The columns that targets are made of.

    Attributes:
        kind: One of a few classes; numbers to be predicted; 0 or 1 for each of several labels; a time, and
            whether an event ended it (1) or nothing is known of later (0); or none, since another has it.
        column: categorical, numeric: the only column.
        columns: numeric, multilabel: the columns, in their order; a target has one number of each.
        time: survival: the column of times, which are 0 or more.
        event: survival: the column of 0 and 1; or a column, and the value of a row whose event was seen.
        missing: What becomes of a row that lacks a value here: it ends the command, or is left out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["categorical", "numeric", "multilabel", "survival", "none"] = "categorical"
    column: str | None = None
    columns: tuple[str, ...] | None = Field(None, min_length=1)
    time: str | None = None
    event: EventMark | str | None = None
    missing: Literal["refuse", "drop"] = "refuse"

    @model_validator(mode="after")
    def _names_its_columns(self) -> Label:
        given = {name: getattr(self, name) for name in ("column", "columns", "time", "event")}
        named, takes = [name for name, value in given.items() if value is not None], TAKES[self.kind]
        wanted = [[name] for name in takes] if self.kind == "numeric" else [list(takes)]
        if named not in wanted:
            needs = (" or " if self.kind == "numeric" else " and ").join(takes)
            raise ValueError(
                f"kind = '{self.kind}' needs {needs}, and {' and '.join(named) or 'none'} is given"
            )
        if len(set(self.read)) != len(self.read):
            raise ValueError(f"a column is named twice; there are {', '.join(self.read)}")
        return self

    @property
    def read(self) -> tuple[str, ...]:
        """Return the names of the columns that are read."""
        event = self.event.column if isinstance(self.event, EventMark) else self.event
        several = self.columns or (self.column, self.time, event)
        return tuple(name for name in several if name is not None)

    @property
    def targets(self) -> Targets | None:
        """Describe one example's target for `federation.json`; None for class numbers, or without a label."""
        if self.kind in ("categorical", "none"):
            return None
        names = ("time", "event") if self.kind == "survival" else self.read
        shape = () if self.column else (len(names),)
        described: dict[str, Any] = {"shape": shape, "names": list(names)}
        return Targets(dtype="bool" if self.kind == "multilabel" else "float32", **described)

    def values(self, piece: Piece, rounding: Rounding) -> np.ndarray:
        """Return the targets of some rows, in the shape and dtype of `targets`; without a label [m, 0].

        What float32 loses of their numbers is noted in `rounding`.

        Raises:
            InputError: a value is missing, or not what the kind takes.
        """
        if self.kind == "none":
            return np.empty((len(piece), 0), np.float32)
        for name in self.read:
            known(piece, name)
        marks = {"multilabel": self.read, "survival": self.read[1:]}.get(self.kind, ())
        columns = [
            self._marks(piece, name) if name in marks else _numbers(piece, name, rounding)
            for name in self.read
        ]
        if self.kind == "survival" and (early := columns[0] < 0).any():
            row, name = int(np.argmax(early)), self.read[0]
            said = f"{name} is '{piece.columns[name][row]}', a time below 0"
            raise InputError(f"{piece.at(row)}: {said}; correct it or remove the row")
        if self.kind == "survival":
            _check_times(piece, self.read[0])
        y = np.stack(columns, axis=1)
        assert self.targets is not None
        return (y[:, 0] if self.column else y).astype(self.targets.dtype)

    def lacks(self, y: np.ndarray) -> str:
        """Say why nothing can be learned from the targets of these rows alone: times without any event."""
        if self.kind != "survival" or y[:, 1].any():
            return ""
        marked = self.event.value if isinstance(self.event, EventMark) else "1"
        return f"no row has '{marked}' in {self.read[1]}, so no event was seen"

    def check_whole(self, where: str, y: np.ndarray) -> None:
        """Refuse the targets of a whole table that nothing can be learned from."""
        if what := self.lacks(y):
            raise InputError(f"{where}: {what}; at least one row needs it")

    def _marks(self, piece: Piece, name: str) -> np.ndarray:
        """Return a column of 0 and 1, float32 [m]: those of the value that stands for 1, if one is stated."""
        if not isinstance(self.event, EventMark):
            return _marks(piece, name)
        wanted = meaning(self.event.value, piece.notation)
        alike = piece.columns[name].each(lambda text: meaning(text, piece.notation) == wanted, False, bool)
        return alike.astype(np.float32)


def known(piece: Piece, name: str) -> None:
    """Refuse a label that is missing."""
    if (texts := piece.columns[name]).lacking:
        remedy = "fill it in, remove the row, or give the label missing = 'drop'"
        raise InputError(f"{piece.at(int(np.argmax(texts.gaps)))}: {name}, the label, is missing; {remedy}")


def _numbers(piece: Piece, name: str, rounding: Rounding) -> np.ndarray:
    """Return a column of numbers, float32 [m]."""
    with np.errstate(over="ignore"):
        numbers = (exact := piece.numbers(name)).astype(np.float32)
        rounding.add(name, exact)
    if not (finite := np.isfinite(numbers)).all():
        row = int(np.argmax(~finite))
        said = f"{name} is '{piece.columns[name][row]}', too large for float32"
        raise InputError(f"{piece.at(row)}: {said}; use another unit")
    return numbers


def _check_times(piece: Piece, name: str) -> None:
    """Refuse times that float32 makes one, or 0."""
    try:
        check_times(piece.numbers(name))
    except ValueError as wrong:
        raise InputError(f"{piece.at(0)} and after it: {name}: {wrong}") from None


def _marks(piece: Piece, name: str) -> np.ndarray:
    """Return a column of 0 and 1, float32 [m]; Parquet's bools are true and false."""
    found = piece.columns[name].spelled(AS_NUMBERS)
    marks = replace(piece, columns={name: found}).numbers(name).astype(np.float32)
    if (wrong := (marks != 0) & (marks != 1)).any():
        row = int(np.argmax(wrong))
        said = f"{name} is '{piece.columns[name][row]}', it must be 0 or 1"
        remedy = f"correct it, or for survival say event = {{ column = '{name}', value = ... }}"
        raise InputError(f"{piece.at(row)}: {said}; {remedy}")
    return marks


def event_told(kind: str, name: str, texts: Iterable[str]) -> list[str]:
    """Ask which value of a column says that an event was seen, where it is not of 0 and 1."""
    values = ordered({*texts})
    if kind != "survival" or {value.lower() for value in values} <= EVENTS:
        return []
    said = f"label: {name} has {some(values)}; say which one means that the event was seen"
    seen = negative_first(values)[-1]
    return [f"{said}, as event = {{ column = {quoted(name)}, value = {quoted(seen)} }}"]
