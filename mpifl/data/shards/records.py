"""Reading of the JSON records of shard folders, in bounded time and memory whoever wrote them."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from mpifl.common import ShardError, one_line

MOST_BYTES = 32 << 20
"""The most bytes in a `federation.json`; ten thousand silos with a hundred classes take 15 MiB."""
MOST_PARTS = 1 << 20
"""The most lists and tables in it."""
BY_HAND = "write it with data_prep, not by hand"


def _bare(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or not name.isprintable() or len(name.encode()) > 255:
        raise ValueError("a shard is a file of the folder itself, by its bare name")
    return name


FileName = Annotated[str, AfterValidator(_bare)]
"""The name of a file in the folder itself."""
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Count = Annotated[int, Field(ge=0, lt=1 << 53)]
"""A count that float64 holds exactly."""
Counts = Annotated[list[Count], Field(fail_fast=True)]
Texts = Annotated[list[Text], Field(fail_fast=True)]


def _few(given: Any) -> Any:
    if isinstance(given, dict) and len(given) > 16:
        raise ValueError("more splits than there are kinds of")
    return given


Examples = Annotated[dict[str, Count], BeforeValidator(_few)]
"""The number of examples by split."""


class Record(BaseModel):
    """A record of a `federation.json`: frozen, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _one_stranger(cls, given: Any) -> Any:
        """Keep only one unknown key: pydantic would otherwise report a million of them."""
        if (
            isinstance(given, dict)
            and len(strangers := [key for key in given if key not in cls.model_fields]) > 1
        ):
            return {
                key: value for key, value in given.items() if key in cls.model_fields or key == strangers[0]
            }
        return given


def known(told: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a dict without one key if its value is None."""
    return {name: value for name, value in told.items() if name != key or value is not None}


Kind = TypeVar("Kind", bound=Record)
ONE, NAMED = "(one array)", "(named arrays)"
MOST_ARRAYS = 16
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,31}$")]
"""The name of one of several arrays."""


def one_or_named(given: Any) -> str:
    """Return the tag of the given value: the record of one array, or records of arrays by name."""
    parts = list(given.values()) if isinstance(given, dict) else []
    return NAMED if parts and all(isinstance(part, dict | Record) for part in parts) else ONE


def few_arrays(given: Any) -> Any:
    """Refuse too many arrays, before any is validated."""
    if isinstance(given, dict) and len(given) > MOST_ARRAYS:
        raise ValueError(f"{len(given)} named arrays, {MOST_ARRAYS} at most")
    return given


def held_out(examples: Mapping[str, int]) -> str | None:
    """Return the split to judge a model by, given how many examples each has: `test`, else `valid`, else
    none."""
    return next((name for name in ("test", "valid") if examples.get(name)), None)


def by_path(part: str, given: Any) -> dict[str, Any]:
    """Return the values for `x` or `y` by the path of each array in a split: `x`, or `x/NAME`."""
    if isinstance(given, dict):
        return {f"{part}/{name}": one for name, one in given.items()}
    return {part: given}


def read_parts(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        OSError: the file cannot be read.
        ShardError: it is not JSON, or larger than such a file may be.
    """
    with path.open("rb") as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ShardError(f"{path}: the file: more than {MOST_BYTES >> 20} MiB; {BY_HAND}")
    if (parts := text.count(b"{") + text.count(b"[")) > MOST_PARTS:
        raise ShardError(f"{path}: the file: {parts} lists and tables, {MOST_PARTS} at most; {BY_HAND}")
    try:
        return from_json(text.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise ShardError(f"{path}: the file: Invalid JSON: {error}; {BY_HAND}") from None


def as_record(path: Path, kind: type[Kind], parts: Any) -> Kind:
    """Return a file's content as a record; raise ShardError with the first fault."""
    try:
        return kind.model_validate(parts)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        loc = [part for part in first["loc"] if part not in (ONE, NAMED)]
        where = ".".join(str(part) if str(part).isprintable() else "?" for part in loc)[:200] or "the file"
        raise ShardError(
            f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}; {BY_HAND}"
        ) from None


def notes_of(source: Mapping[str, Any], kind: str) -> list[str]:
    """Return the lines of one kind that `data-prep` noted of shards, for all silos or for each site."""
    notes = source.get("notes")
    lines = (
        [line for of, line in notes.items() if of.partition(" of ")[0] == kind]
        if isinstance(notes, dict)
        else []
    )
    return [one_line(line) for line in lines if isinstance(line, str)]
