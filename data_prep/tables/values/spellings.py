"""Values of a category that are one, spelled in several ways."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path

from data_prep.tables.values.notation import Notation
from mpifl.common import InputError

AS_NUMBERS = {"false": "0", "true": "1"}
"""What Parquet's bools are among marks of 0 and 1."""
BOOLS = ("true", "false")
MOST_SHOWN = 8
"""Values that a message writes out."""


def check_spellings(path: Path, name: str, key: str, values: Sequence[str], notation: Notation) -> None:
    """Refuse values of a column, in their order, of which two are one number, or one of true and false.

    Programs that write a column once as whole numbers and once not, or bools in their own way, make them.
    `key` of the spec says which are one.
    """
    found = spelled(values, lambda value: meaning(value, notation))
    if len(found) == len(values):
        return
    several = next(one for one in found if len(one) > 1)
    one = ", ".join(f"'{value}'" for value in several[:-1]) + f" and '{several[-1]}'"
    line = listed(found if len(found) <= MOST_SHOWN else [several])
    line = line if len(found) <= MOST_SHOWN else f"{line[:-1]}, ...]"
    said = f"column '{name}' has {one}, which are one value; say in the spec which are one"
    raise InputError(f"{path}: {said}, as {key} = {line}")


def spelled(values: Iterable[str], meant: Callable[[str], Hashable]) -> list[list[str]]:
    """Put together the values that mean the same, in their order."""
    found: dict[Hashable, list[str]] = {}
    for value in values:
        found.setdefault(meant(value), []).append(value)
    return list(found.values())


def meaning(value: str, notation: Notation) -> Hashable:
    """Return what a value is to any reader: a number, true or false, or its own text."""
    if plain := notation.plain(value):
        return Decimal(plain)
    return value.lower() if value.lower() in BOOLS else value


def likely(value: str, notation: Notation) -> Hashable:
    """Return what a value most likely is: as `meaning`, and texts that differ by case and blanks are one."""
    return Decimal(plain) if (plain := notation.plain(value)) else " ".join(value.split()).casefold()


def respelled(values: Iterable[str], notation: Notation) -> list[list[str]]:
    """Return the spellings of each value that most likely is one and has several."""
    return [one for one in spelled(values, lambda value: likely(value, notation)) if len(one) > 1]


def listed(values: Iterable[Sequence[str]]) -> str:
    """Return values as `classes` and `levels` of a spec have them, each by its spellings."""
    return json.dumps([one[0] if len(one) == 1 else list(one) for one in values], ensure_ascii=False)
