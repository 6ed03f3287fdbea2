"""Columns that say whose a row is, or which: their names give them away, or how their values repeat."""

from __future__ import annotations

import re

from data_prep.tables.values.tallying import Tally

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
OFTEN = 20
"""How often each value of a category occurs in the mean, whose name alone would say that it is an id."""
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


def is_category(name: str, tally: Tally) -> bool:
    """Tell whether a column that is named as an id has too few values for one.

    It has two, or fewer than ten that occur often. Then its last word is not that of an id alone, and the
    values of a person's column have no digits."""
    few = tally.different < VARIED and tally.looked >= OFTEN * tally.different
    last = [word.lower() for word in WORDS.findall(name)][-1:]
    digits = any(letter.isdigit() for text in tally.texts for letter in text)
    return tally.different <= 2 or (few and IDS.isdisjoint(last) and not (digits and is_of_persons(name)))


def is_index(name: str) -> bool:
    """Tell whether a column's name is one that programs give to a table's index, whatever stands there."""
    return OF_PROGRAMS.fullmatch(name) is not None


def is_of_persons(name: str) -> bool:
    """Tell whether an id's name says that it is a person's, or nothing but that it is an id."""
    words = [word.lower() for word in WORDS.findall(name)]
    return not PERSONS.isdisjoint(words) or words in (["id"], ["ids"])


def looks_like_id(tally: Tally) -> str:
    """Say why the values of a column look like ids; "" where they do not."""
    different, rows = tally.different, tally.looked
    if not tally.whole or rows < FEWEST or different < VARIED:
        return ""
    if different == rows:
        return "a different whole number in every row"
    if _scattered(tally):
        return f"{different:,} whole numbers in {rows:,} rows, far apart and yet repeated"
    return (
        f"{different:,} whole numbers, mostly the same in the next row"
        if tally.equal >= ADJACENT * rows
        else ""
    )


def _scattered(tally: Tally) -> bool:
    """Tell whether different numbers lie so far apart that no measurement would repeat them; amounts that are
    rounded do."""
    different, rounded = tally.different, int((tally.keys & 1).sum())
    apart = tally.most - tally.least > APART * different
    return different <= REPEATED * tally.looked and apart and rounded < ROUNDED * different
