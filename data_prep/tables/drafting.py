"""A first spec of a table, guessed from its rows, for its owner to read through."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.tables.files import Lines, kind_of, names_of_parquet, opened, parts_of
from data_prep.tables.guessing import Guess, classes_of, guessed, quoted
from data_prep.tables.label import TAKES
from data_prep.tables.spec import TableSpec
from data_prep.tables.surveying import survey
from data_prep.tables.values import MISSING, PLAIN, Notation, Tally, is_of_persons, number, tallied
from mpifl.common import InputError, did_you_mean, visible

KINDS = tuple(kind for kind in TAKES if kind != "none")
"""What a label may be."""
FEWEST_ROWS = 3
"""Rows from which on a first line that is unlike all others is taken for names."""
DELIMITERS = ",;\t|"
MOST_NAMES = 1 << 20
"""Characters of a table's first line that are looked at."""


@dataclass(frozen=True)
class Learned:
    """What is learned of a table, as `[label]` of its spec has it.

    Attributes:
        kind: categorical, numeric, multilabel or survival.
        columns: The label's columns; of survival the time, then the event.
        silo: The column of natural silos, if one is.
        names: What a CSV table's columns are called, where its first line does not say it.
        group: The column that says whose a row is, if one does.
        encoding: How the characters of a CSV table are written.
    """

    kind: str
    columns: tuple[str, ...]
    silo: str | None = None
    names: tuple[str, ...] = ()
    group: str | None = None
    encoding: str = "utf-8"

    def written(self) -> list[str]:
        """Return the lines of the spec that say so.

        Raises:
            InputError: there are more columns, or fewer, than its kind takes.
        """
        silo = [f"silo = {quoted(self.silo)}"] if self.silo else []
        keys, one = TAKES[self.kind], len(self.columns) == 1
        if "columns" in keys and not (one and "column" in keys):
            given = f"columns = [{', '.join(map(quoted, self.columns))}]"
        elif len(wanted := [key for key in keys if key != "columns"]) == len(self.columns):
            given = ", ".join(
                f"{key} = {quoted(name)}" for key, name in zip(wanted, self.columns, strict=True)
            )
        else:
            raise InputError(f"--label: {self.kind} takes {','.join(wanted).upper()}; name each, by commas")
        names = [f"names = [{', '.join(map(quoted, self.names))}]"] if self.names else []
        return [f'label = {{ kind = "{self.kind}", {given} }}', *silo, *names]


class Drafted(NamedTuple):
    """A spec of a table, and what its owner should hear of it, a line each."""

    text: str
    told: list[str]


def draft(path: Path, learned: Learned) -> Drafted:
    """Return a spec for a table, CSV or Parquet by its ending.

    The kinds of columns are guessed from all rows of the table: numbers, dates, or a few texts.
    Another column is left out, in a comment, and told.

    Raises:
        InputError: the table cannot be read, or lacks a column that is named.
    """
    kind = kind_of(path)
    names, delimiter = _header(kind, path, learned.encoding)
    if learned.names and kind == "parquet":
        raise InputError(f"--names: {path} is Parquet, which names its columns; leave it out")
    names = [*learned.names] or names
    features = _features(path, learned, names)
    given: dict[str, Any] = {
        "features": dict.fromkeys(names, "categorical"),
        "delimiter": delimiter,
        "encoding": learned.encoding,
        "missing": (),
    }
    spec = TableSpec.model_validate({**given, "names": learned.names or None})
    tallies, rows, notation = tallied(kind, path, spec)
    if not rows:
        raise InputError(f"{path}: has no rows")
    if learned.names:
        _check_first(path, tallies)
    guesses = {name: guessed(name, tallies[name]) for name in features}
    of_label = [classes_of(name, tallies[name]) for name in learned.columns if learned.kind == "categorical"]
    group = learned.group or _of_persons(guesses)
    lines = [
        f"# What the columns of {visible(path.name)} mean.",
        f"# It is guessed from all {rows:,} rows: read it through.",
        *learned.written(),
        *(guess.line for guess in of_label if guess.line),
        *_grouped(group),
        f"missing = [{', '.join(map(quoted, MISSING))}]",
        'standardise = "own"',
        *([f"delimiter = {quoted(delimiter)}"] if delimiter != "," else []),
        *([f"encoding = {quoted(learned.encoding)}"] if learned.encoding != Learned.encoding else []),
        *notation.written(),
    ]
    text = "\n".join([*lines, "", "[features]", *(guess.line for guess in guesses.values()), ""])
    told = _told([*guesses.values()], of_label)
    return Drafted(text, [*told, *_whole(guesses, group), *_marked(tallies), *_written(tallies, notation)])


def _told(features: list[Guess], of_label: list[Guess]) -> list[str]:
    """Return what is to be told of columns one by one, and whether none is left as a feature."""
    told = [guess.told for guess in (*features, *of_label) if guess.told]
    none = all(guess.line.startswith("#") for guess in features)
    return [*told, *(['no column is left as a feature: write one, as age = "numeric"'] if none else [])]


def _check_first(path: Path, tallies: Mapping[str, Tally]) -> None:
    """Refuse names for a table whose first line is no row, but has a text where all others have numbers."""
    for name, tally in tallies.items():
        alone = tally.odd == 1 and tally.known > FEWEST_ROWS and tally.first == tally.first_odd
        if alone:
            what = f"{name} is {tally.first}, and a number in every other row"
            raise InputError(f"{path}: {what}: a line of names; leave --names out, or take the line away")


def _of_persons(guesses: Mapping[str, Guess]) -> str | None:
    """Return the first id of a person that several rows share."""
    return next((name for name, guess in guesses.items() if guess.repeats and is_of_persons(name)), None)


def _grouped(group: str | None) -> list[str]:
    return (
        [f"group = {quoted(group)}  # rows of one stay together, in one split of one silo"] if group else []
    )


def _whole(guesses: Mapping[str, Guess], group: str | None) -> list[str]:
    """Say which rows stay together, and which others may have to."""
    if group:
        return [f"group: {group}, whose rows stay together; take it out if they are not one person's"]
    others = [name for name, guess in guesses.items() if guess.repeats]
    return [f"repeated: {name}; say group = {quoted(name)} if its rows are one person's" for name in others]


def _features(path: Path, learned: Learned, names: Sequence[str]) -> list[str]:
    """Return the columns of a table that are neither learned nor the silo or the group."""
    own = [*learned.columns, *(name for name in (learned.silo, learned.group) if name)]
    if lacking := [name for name in own if name not in names]:
        there = f"{did_you_mean(lacking[0], names)}there are {', '.join(names)[:300]}"
        hint = "; these look like a row: give the columns' names by --names, or in a line above it"
        headless = any(map(_is_number, names))
        raise InputError(f"{path}: has no column '{lacking[0]}'; {there}{hint * headless}")
    if not (features := [name for name in names if name not in own]):
        raise InputError(f"{path}: has no column beside {', '.join(own)}; a feature is needed")
    return features


def _marked(tallies: Mapping[str, Tally]) -> list[str]:
    """Say what stands for a missing value, how often, and where first."""
    found: dict[str, tuple[int, str]] = {}
    for name, tally in tallies.items():
        for mark, (times, where) in tally.marks.items():
            before, first = found.get(mark, (0, f"in {name} ({where})"))
            found[mark] = before + times, first
    remedy = "take it out of 'missing' if it is a value"
    return [f"missing: '{mark}', {n:,} times, first {where}; {remedy}" for mark, (n, where) in found.items()]


def _written(tallies: Mapping[str, Tally], notation: Notation) -> list[str]:
    """Say how numbers are written, where not plainly, with one that shows it."""
    if notation == PLAIN:
        return []
    ways = {name: tally.ways for name, tally in tallies.items()}
    of_numbers = {name: one.shown for name, one in ways.items() if notation in one.all}
    shown = {name: found[notation] for name, found in of_numbers.items() if notation in found}
    name, first = next(iter(shown.items()))
    return [f"numbers: {' and '.join(notation.written())}, as in {name} {first}"]


def label_moments(path: Path, column: str) -> tuple[float, float]:
    """Return mean and deviation of a table's column of numbers, gaps left out; 0 and 1 without any.

    Raises:
        InputError: the table cannot be read, lacks the column, or it is none of numbers.
    """
    kind = kind_of(path)
    _, delimiter = _header(kind, path, Learned.encoding)
    only: dict[str, Any] = {
        "features": {column: "numeric"},
        "missing": MISSING,
        "delimiter": delimiter,
        "standardise": "own",
    }
    _, _, way = tallied(kind, path, TableSpec.model_validate(only))
    only |= {"decimal": way.decimal, "thousands": way.thousands or None}
    found = survey(kind, path, TableSpec.model_validate(only)).moments
    return found.columns[column].mean, found.columns[column].deviation


def _header(kind: str, path: Path, encoding: str) -> tuple[list[str], str]:
    """Return the names of a table's columns, and what separates them: what a first line has most of."""
    first = parts_of(kind, path)[0]
    names, delimiter = (
        (names_of_parquet(first.path), ",") if kind == "parquet" else _first_line(first.path, encoding)
    )
    return [*names, *first.columns], delimiter


def _first_line(path: Path, encoding: str) -> tuple[list[str], str]:
    """Return the same of a CSV file."""
    with opened(path, encoding) as file:
        line = _whole_line(Lines(path, file))
    delimiter = max(DELIMITERS, key=line.count)
    try:
        words = next(
            csv.reader(io.StringIO(line, newline=""), delimiter=delimiter, skipinitialspace=True), []
        )
    except csv.Error as error:
        raise InputError(f"{path}: its first line is none of a CSV table ({error})") from None
    if "\0" in line:
        raise InputError(f"{path}: line 1: has a NUL character; export the table again in UTF-8")
    names = [word.strip() for word in words]
    if not any(names):
        raise InputError(f"{path}: its first line names no columns")
    return names, delimiter


def _whole_line(lines: Iterable[str]) -> str:
    """Return the first line, with those that it goes on in while a name in quotes does."""
    found = ""
    for line in lines:
        found += line
        if found.count('"') % 2 == 0 or len(found) > MOST_NAMES:
            break
    return found[:MOST_NAMES]


def _is_number(text: str) -> bool:
    return math.isfinite(number(text))
