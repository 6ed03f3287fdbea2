"""What a column of a table seems to be, by some of its rows: a line of a spec, and why it is left out."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from data_prep.tables.ids import is_index, is_named_id, looks_like_id
from data_prep.tables.notation import OTHERS, PLAIN, Notation
from data_prep.tables.piece import MISSING, Piece, days_of, number
from mpifl.common import visible

MOST_LEVELS = 50
"""Different texts of a column that is taken for categories; one with more is left out."""
FEW, SOME = 0.1, 10
"""A column is one of numbers with mistakes if at most this share is none, and there are more numbers."""
SINCE = "2000-01-01"
"""The day that is 0 of dates: the same at all sites."""


@dataclass(frozen=True)
class Guess:
    """What a column is taken for.

    Attributes:
        line: That of the spec.
        told: What its owner should hear: why it is left out, or why it may have to be, with the first value.
        repeats: Whether it is an id that several rows share.
    """

    line: str
    told: str = ""
    repeats: bool = False


def guessed(name: str, piece: Piece) -> Guess:
    """Return what a column is taken for."""
    values = [(row, value) for row, value in enumerate(piece.columns[name]) if value is not None]
    if not values:
        return _left_out(name, "it has no value")
    known, gaps = [value for _, value in values], len(values) < len(piece)
    numbers = _numbers(known, piece.notation)
    whole = not np.isfinite(numbers).all() or (numbers == np.rint(numbers)).all()
    if is_index(name) or (is_named_id(name) and whole and len(set(known)) > 2):
        counted = f"{len(set(known)):,} values in {len(known):,} rows, first {_place(piece, values[0])}"
        out = _left_out(name, f"its name says that it is an id: {counted}")
        return replace(out, repeats=len(set(known)) < len(known))
    if np.isfinite(numbers).all():
        if len(known) > 2 and all(b == a + 1 for a, b in itertools.pairwise(numbers.tolist())):
            return _left_out(name, f"it numbers the rows, first {_place(piece, values[0])}")
        kind = '{ kind = "numeric", missing = "mean" }' if gaps else '"numeric"'
        why = looks_like_id(known)
        said = f"kept: {name}, {why}, first {_place(piece, values[0])}; take it out if it is an id"
        return Guess(f"{key_of(name)} = {kind}", said if why else "")
    if all(not np.isnan(days_of(value, date.min)) for value in known):
        mean = ', missing = "mean"' * gaps
        return Guess(f'{key_of(name)} = {{ kind = "date", since = "{SINCE}"{mean} }}')
    return _texts(name, piece, values, numbers, gaps=gaps)


def _texts(
    name: str, piece: Piece, values: Sequence[tuple[int, str]], numbers: np.ndarray, *, gaps: bool
) -> Guess:
    """Return what a column is taken for of which some values are no numbers."""
    levels, odd = sorted({value for _, value in values}), np.flatnonzero(~np.isfinite(numbers))
    first = _place(piece, values[odd[0]])
    if ways := _ways([value for _, value in values]):
        said = f"{first} is a number by {' or '.join(ways)}; write all numbers alike, and say it"
        return _left_out(name, said)
    if len(odd) <= FEW * len(values) and len(np.unique(numbers[np.isfinite(numbers)])) > SOME:
        remedy = "correct it, or list it in 'missing'"
        return _left_out(name, f"it is of numbers but for {len(odd):,}, first {first}; {remedy}")
    if len(levels) > MOST_LEVELS:
        return _left_out(name, f"{len(levels):,} different texts, first {first}")
    shown = ", ".join(itertools.islice(levels, 6)) + (", ..." if len(levels) > 6 else "")
    value = '{ kind = "categorical", missing = "level" }' if gaps else '"categorical"'
    return Guess(f"{key_of(name)} = {value}  # {_one_line(shown)}")


def _ways(values: Sequence[str]) -> list[str]:
    """Return the keys by which values are numbers, all those by which they are other numbers."""
    found: dict[tuple[str, ...], Notation] = {}
    for way in (PLAIN, *OTHERS):
        if all(numbers := tuple(map(way.plain, values))):
            found.setdefault(numbers, way)
    return [" and ".join(way.written() or ['decimal = "."']) for way in found.values()]


def notation_of(piece: Piece) -> Notation:
    """Return how a table writes numbers: the way by which most of its columns are of numbers.

    Where two ways are as good and mean other numbers, it is the plain one.
    """
    found = {way: _columns(piece, way) for way in (PLAIN, *OTHERS)}
    most = max(map(len, found.values()))
    best = [way for way, columns in found.items() if len(columns) == most]
    return PLAIN if len(found[PLAIN]) == most or _differ(piece, best) else best[0]


def _columns(piece: Piece, way: Notation) -> set[str]:
    """Return the columns that are of numbers if they are so written."""
    known = {name: [value for value in values if value] for name, values in piece.columns.items()}
    return {name for name, values in known.items() if values and all(map(way.plain, values))}


def _differ(piece: Piece, ways: Sequence[Notation]) -> bool:
    """Tell whether a table has other numbers by one way than by another."""
    return len({str(_read(piece, way)) for way in ways}) > 1


def _read(piece: Piece, way: Notation) -> dict[str, list[str]]:
    return {name: [way.plain(value or "") for value in piece.columns[name]] for name in _columns(piece, way)}


def marks_of(piece: Piece) -> dict[str, tuple[int, str]]:
    """Return the marks of missing values that occur, but for nothing: how often, and where first."""
    found: dict[str, tuple[int, str]] = {}
    for name, values in piece.columns.items():
        for row, value in enumerate(values):
            if value and value in MISSING:
                times, where = found.get(value, (0, f"in {name} ({line_of(piece, row)})"))
                found[value] = times + 1, where
    return found


def without_marks(piece: Piece) -> Piece:
    """Return the same rows with None for what is missing."""
    columns = {
        name: [None if value is None or value in MISSING else value for value in values]
        for name, values in piece.columns.items()
    }
    return replace(piece, columns=columns)


def key_of(name: str) -> str:
    """Return a column's name as a key of TOML."""
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else quoted(name)


def quoted(text: str) -> str:
    """Return a text as TOML has it in quotes."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML takes it escaped alone


def _numbers(known: Sequence[str], notation: Notation) -> np.ndarray:
    """Return values as numbers, NaN where one is none."""
    plain = known if notation == PLAIN else map(notation.plain, known)
    return np.array([number(value) for value in plain], np.float64)


def _left_out(name: str, why: str) -> Guess:
    return Guess(f"# {key_of(name)} is left out: {_one_line(why)}", f"left out: {name}, {why}")


def _place(piece: Piece, found: tuple[int, str]) -> str:
    row, value = found
    return f"'{value[:40]}' ({line_of(piece, row)})"


def line_of(piece: Piece, row: int) -> str:
    """Return where a row stands, without the file."""
    return f"{piece.where.rpartition(': ')[2]} {piece.places[row]}"


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())
