"""Columns that say whose a row is, or which: their names give them away, or how their values repeat."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
IDS = {"id", "ids", "uid", "uuid", "guid", "mrn", "pid", "rowid", "identifier"}
"""Last words of a column that is an id."""
ALONE = {
    "index",
    "patient",
    "subject",
    "person",
    "participant",
    "case",
    "record",
    "encounter",
    "admission",
    "key",
}
"""Names of one word that an id has."""
NUMBERS = {"number", "no", "nr", "num", "code"}
"""Last words of an id, if one of `ALONE` stands before."""
OF_PROGRAMS = re.compile(r"|Unnamed: [0-9]+|__index_level_[0-9]+__")
"""What pandas calls the index of a table that it writes; R's has no name."""
FEWEST, VARIED, ADJACENT = 50, 10, 0.5
"""Rows and different values that a pattern needs, and the share of rows that are like the one before."""


def is_named_id(name: str) -> bool:
    """Tell whether a column's name says that it is an id, or a table's index."""
    if OF_PROGRAMS.fullmatch(name):
        return True
    *before, last = [word.lower() for word in WORDS.findall(name)] or [""]
    of_one = not ALONE.isdisjoint([*before, last])
    return last in IDS or (of_one and last in (NUMBERS if before else ALONE))


def looks_like_id(values: Sequence[str]) -> str:
    """Say why the values of a column, row by row, look like ids; "" where they do not."""
    different = len(set(values))
    whole = all(value.lstrip("+-").isdecimal() for value in values)
    if not whole or len(values) < FEWEST or different < VARIED:
        return ""
    if different == len(values):
        return "another whole number in every row"
    equal = sum(before == after for before, after in itertools.pairwise(values))
    told = f"{different:,} whole numbers, mostly the same in the next row"
    return told if equal >= ADJACENT * len(values) else ""
