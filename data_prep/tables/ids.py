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
PERSONS = {"patient", "subject", "person", "participant", "case", "mrn", "pid"}
"""Words in the name of an id of which several rows are one person's."""
NUMBERS = {"number", "no", "nr", "num", "code"}
"""Last words of an id, if one of `ALONE` stands before."""
OF_PROGRAMS = re.compile(r"|Unnamed: [0-9.]+|__index_level_[0-9]+__|level_[0-9]+")
"""What pandas calls the index of a table that it writes, or writes again; R's has no name."""
FEWEST, VARIED, ADJACENT = 50, 10, 0.5
"""Rows and different values that a pattern needs, and the share of rows that are like the one before."""
REPEATED, APART, ROUNDED = 0.75, 100, 0.5
"""Of numbers that repeat: how many differ at most, how far apart, and the share that ends in 0 or 5."""


def is_named_id(name: str) -> bool:
    """Tell whether a column's name says that it is an id, or a table's index."""
    if is_index(name):
        return True
    *before, last = [word.lower() for word in WORDS.findall(name)] or [""]
    of_one = not ALONE.isdisjoint([*before, last])
    return last in IDS or (of_one and last in (NUMBERS if before else ALONE))


def is_index(name: str) -> bool:
    """Tell whether a column's name is one that programs give to a table's index, whatever stands there."""
    return OF_PROGRAMS.fullmatch(name) is not None


def is_of_persons(name: str) -> bool:
    """Tell whether an id's name says that it is a person's, or nothing but that it is an id."""
    words = [word.lower() for word in WORDS.findall(name)]
    return not PERSONS.isdisjoint(words) or words in (["id"], ["ids"])


def looks_like_id(values: Sequence[str]) -> str:
    """Say why the values of a column, row by row, look like ids; "" where they do not."""
    different = len(set(values))
    whole = all(value.lstrip("+-").isdecimal() for value in values)
    if not whole or len(values) < FEWEST or different < VARIED:
        return ""
    if different == len(values):
        return "another whole number in every row"
    if _scattered([int(value) for value in set(values)], len(values)):
        return f"{different:,} whole numbers in {len(values):,} rows, far apart and yet repeated"
    equal = sum(before == after for before, after in itertools.pairwise(values))
    told = f"{different:,} whole numbers, mostly the same in the next row"
    return told if equal >= ADJACENT * len(values) else ""


def _scattered(numbers: Sequence[int], rows: int) -> bool:
    """Tell whether different numbers lie so far apart that no measurement would repeat them; amounts that are
    rounded do."""
    rounded = sum(number % 10 in (0, 5) for number in numbers)
    apart = max(numbers) - min(numbers) > APART * len(numbers)
    return len(numbers) <= REPEATED * rows and apart and rounded < ROUNDED * len(numbers)
