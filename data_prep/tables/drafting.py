"""A first spec of a table, guessed from its rows, for its owner to read through."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.tables.files import header_of, kind_of, names_of_parquet, parts_of, separated, spec_beside
from data_prep.tables.guessing import Guess, classes_of, counted_classes, guessed, quoted
from data_prep.tables.label import TAKES
from data_prep.tables.spec import TableSpec
from data_prep.tables.values import (
    MISSING,
    PLAIN,
    Notation,
    Tally,
    is_named_id,
    is_of_persons,
    number,
    ordered,
    some,
    tallied,
)
from mpifl.common import InputError, did_you_mean, visible

KINDS = tuple(kind for kind in TAKES if kind != "none")
"""What a label may be."""
EVENTS = {"0", "1", "0.0", "1.0", "true", "false"}
"""How a column of events that were seen or not is written."""
FEWEST_ROWS = 3
"""Rows from which on a first line that is unlike all others is taken for names."""


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
    """A spec of a table, and what follows of its rows.

    Attributes:
        text: The spec.
        told: What its owner should hear of it, a line each.
        classes: How many rows each class of a label of categories has, in the order of the classes.
        own: The specs of tables that write numbers otherwise than most, by their tables.
    """

    text: str
    told: list[str]
    classes: dict[str, int]
    own: dict[Path, str]


def draft(tables: Path | Sequence[Path], learned: Learned) -> Drafted:
    """Return a spec for a table, CSV or Parquet by its ending, or one for the tables of several sites.

    The kinds of columns are guessed from all rows: numbers, dates, or a few texts. Another column is left
    out, in a comment, and told. Of several tables the columns that all have are taken, levels and classes are
    stated, and statistics are those of all sites.

    Raises:
        InputError: a table cannot be read, or lacks a column that is named.
    """
    paths = [tables] if isinstance(tables, Path) else [*tables]
    names, lacking = _shared_names(paths, learned)
    features = _features(paths, learned, names)
    known: dict[str, Any] = {"encoding": learned.encoding, "missing": (), "names": learned.names or None}
    spec = TableSpec.model_validate({**known, "features": dict.fromkeys(names, "categorical")})
    tallies, rows, notations = tallied(paths, spec)
    if not rows:
        raise InputError(f"{paths[0]}: has no rows")
    if learned.names:
        _check_first(paths[0], tallies)
    apart = len(paths) > 1
    guesses = {name: guessed(name, tallies[name], stated=apart) for name in features}
    classes = learned.columns if learned.kind == "categorical" else ()
    of_label = [classes_of(name, tallies[name], stated=apart) for name in classes]
    group = learned.group or _of_persons(guesses)
    lines = [
        f"# What the columns of {', '.join(visible(path.name) for path in paths)} mean.",
        f"# It is guessed from all {rows:,} rows: read it through.",
        *learned.written(),
        *(guess.line for guess in of_label if guess.line),
        *_grouped(group),
        f"missing = [{', '.join(map(quoted, MISSING))}]",
        _standardised(paths),
        *_delimited(paths, spec),
        *([f"encoding = {quoted(learned.encoding)}"] if learned.encoding != Learned.encoding else []),
    ]
    columns = ["", "[features]", *(guess.line for guess in guesses.values()), ""]
    texts = {way: "\n".join([*lines, *way.written(), *columns]) for way in notations}
    told = [*_told([*guesses.values()], of_label), *_events(learned, tallies), *lacking]
    told += [*_whole(guesses, group), *_marked(tallies)]
    notation = Counter(notations).most_common(1)[0][0]
    others = {path: way for path, way in zip(paths, notations, strict=True) if way != notation}
    told += _apart(others) if others else _written(tallies, notation)
    counts = counted_classes(tallies[learned.columns[0]]) if of_label else {}
    return Drafted(texts[notation], told, counts, {path: texts[way] for path, way in others.items()})


def _shared_names(paths: Sequence[Path], learned: Learned) -> tuple[list[str], list[str]]:
    """Return the names of the columns that all tables have, and what to say of the others."""
    kinds = [kind_of(path) for path in paths]
    headers = [_header(kind, path, learned.encoding) for kind, path in zip(kinds, paths, strict=True)]
    if learned.names and "parquet" in kinds:
        path = paths[kinds.index("parquet")]
        raise InputError(f"--names: {path} is Parquet, which names its columns; leave it out")
    if learned.names:
        return [*learned.names], []
    named = set(learned.columns) | {learned.silo, learned.group}
    without = {
        name: [path for path, header in zip(paths, headers, strict=True) if name not in header]
        for name in dict.fromkeys(name for header in headers for name in header)
    }
    for name in sorted(filter(None, named)):
        if lack := without.get(name):
            own = next(path for path in paths if path not in lack)
            there = ", ".join(headers[paths.index(lack[0])])[:200]
            what = f"has no column '{name}', which {own.name} has; its columns are {there}"
            remedy = "call the label, silo and group alike; a feature may say rename in its site's spec"
            raise InputError(f"{lack[0]}: {what}; {remedy}")
    shared = [name for name, lack in without.items() if not lack or name in named]
    lacking = {name: lack for name, lack in without.items() if name not in shared}
    told = [f"left out: {name}, not in {_names(lack)}" for name, lack in lacking.items()]
    return shared, [line + _renamed(name, lacking, paths) for name, line in zip(lacking, told, strict=True)]


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths)


def _renamed(name: str, lacking: Mapping[str, Sequence[Path]], paths: Sequence[Path]) -> str:
    """Ask whether a column of the first table has another name in the tables that lack it; "" if it cannot
    be one of their columns."""
    own = [path for path in paths if path not in lacking[name]]
    others = [other for other, lack in lacking.items() if [*lack] == own]
    if paths[0] not in own or not others:
        return ""
    close = did_you_mean(name, others).split("'")
    other = close[1] if len(close) > 1 else others[0] if len(others) == 1 else ""
    where = ", ".join(spec_beside(path).name for path in lacking[name])
    remedy = f"add {name} to the spec, and in a copy of it, {where}, say rename = {quoted(other)}"
    return f"; if {other} is the same column, {remedy}" if other else ""


def _standardised(paths: Sequence[Path]) -> str:
    """Return the line of how numbers are standardised: of several sites by what each may share."""
    if len(paths) == 1:
        return 'standardise = "own"'
    names = [spec_beside(path).stem for path in paths]
    if twice := [path for path, name in zip(paths, names, strict=True) if names.count(name) > 1]:
        raise InputError(f"{twice[0]} and {twice[1]}: tables of two sites are called alike; rename one")
    files = ", ".join(quoted(f"{name}.json") for name in names)
    return f"standardise = [{files}]  # of `data-prep statistics`, one of each site"


def _delimited(paths: Sequence[Path], spec: TableSpec) -> list[str]:
    """Return the line of the delimiter, if all files have one that is no comma."""
    tables = [path for path in paths if kind_of(path) == "csv"]
    parts = [part for path in tables for part in parts_of("csv", path)]
    found = {separated(part.path, spec, part.columns).delimiter for part in parts} - {None}
    return [f"delimiter = {quoted(one)}" for one in found if one and one != ","] if len(found) == 1 else []


def _told(features: list[Guess], of_label: list[Guess]) -> list[str]:
    """Return what is to be told of columns one by one, and whether none is left as a feature."""
    told = [guess.told for guess in (*features, *of_label) if guess.told]
    none = all(guess.line.startswith("#") for guess in features)
    line = 'no column is left as a feature: add one to the spec, for example age = "numeric"'
    return [*told, *([line] if none else [])]


def _check_first(path: Path, tallies: Mapping[str, Tally]) -> None:
    """Refuse names for a table whose first line is no row, but has a text where all others have numbers."""
    for name, tally in tallies.items():
        alone = tally.odd == 1 and tally.known > FEWEST_ROWS and tally.first == tally.first_odd
        if alone:
            what = f"{name} is {tally.first}, and a number in every other row"
            raise InputError(f"{path}: {what}: a line of names; leave --names out, or remove the line")


def _of_persons(guesses: Mapping[str, Guess]) -> str | None:
    """Return the first id of a person that several rows share; one that its name calls an id."""
    repeated = [name for name, guess in guesses.items() if guess.repeats and is_named_id(name)]
    return next(filter(is_of_persons, repeated), None)


def _grouped(group: str | None) -> list[str]:
    """Return the lines that say whose a row is: shards keep it, and predictions name it."""
    if not group:
        return []
    whole = f"group = {quoted(group)}  # rows of one stay together, in one split of one silo"
    return [f"id = {quoted(group)}  # shards keep it, and predictions name it", whole]


def _whole(guesses: Mapping[str, Guess], group: str | None) -> list[str]:
    """Say which rows stay together, and which others may have to."""
    if group:
        return [f"group: {group}, whose rows stay together; remove it if they are not one person's"]
    others = [name for name, guess in guesses.items() if guess.repeats]
    return [f"repeated: {name}; say group = {quoted(name)} if its rows are one person's" for name in others]


def _features(paths: Sequence[Path], learned: Learned, names: Sequence[str]) -> list[str]:
    """Return the columns of tables that are neither learned nor the silo or the group."""
    own = [*learned.columns, *(name for name in (learned.silo, learned.group) if name)]
    if lacking := [name for name in own if name not in names]:
        there = f"{did_you_mean(lacking[0], names)}there are {', '.join(names)[:300]}"
        hint = "; these look like a row: give the columns' names by --names, or in a line above it"
        headless = any(map(_is_number, names))
        raise InputError(f"{paths[0]}: has no column '{lacking[0]}'; {there}{hint * headless}")
    if not (features := [name for name in names if name not in own]):
        raise InputError(f"{paths[0]}: has no column beside {', '.join(own)}; a feature is needed")
    return features


def _events(learned: Learned, tallies: Mapping[str, Tally]) -> list[str]:
    """Ask which value of a column says that an event was seen, where it is not of 0 and 1."""
    name = learned.columns[-1]
    values = ordered(set(tallies[name].texts))
    if learned.kind != "survival" or {value.lower() for value in values} <= EVENTS:
        return []
    said = f"label: {name} has {some(values)}; say which one means that the event was seen"
    return [f"{said}, as event = {{ column = {quoted(name)}, value = {quoted(values[-1])} }}"]


def _marked(tallies: Mapping[str, Tally]) -> list[str]:
    """Say what stands for a missing value, how often, and where first."""
    found: dict[str, tuple[int, str]] = {}
    for name, tally in tallies.items():
        for mark, (times, where) in tally.marks.items():
            before, first = found.get(mark, (0, f"in {name} ({where})"))
            found[mark] = before + times, first
    remedy = "remove it from 'missing' if it is a value"
    return [f"missing: '{mark}', {n:,} times, first {where}; {remedy}" for mark, (n, where) in found.items()]


def _written(tallies: Mapping[str, Tally], notation: Notation) -> list[str]:
    """Say how numbers are written, where not plainly, with one that shows it."""
    if notation == PLAIN:
        return []
    ways = {name: tally.ways for name, tally in tallies.items() if notation in tally.ways.certain}
    found = [(name, one.sure) for name, one in ways.items()] + [
        (name, one.shown) for name, one in ways.items()
    ]
    name, first = next((name, shown[notation]) for name, shown in found if notation in shown)
    return [f"numbers: {' and '.join(notation.written())}, as in {name} {first}"]


def _apart(others: Mapping[Path, Notation]) -> list[str]:
    """Say which tables write numbers otherwise than most, and where their own specs stand."""
    ways = {path: " and ".join(way.written()) or 'decimal = "."' for path, way in others.items()}
    return [
        f"numbers: {path.name} has {way}, in its own spec {spec_beside(path)}" for path, way in ways.items()
    ]


def _header(kind: str, path: Path, encoding: str) -> list[str]:
    """Return the names of a table's columns."""
    first = parts_of(kind, path)[0]
    names = names_of_parquet(first.path) if kind == "parquet" else header_of(first.path, encoding)[0]
    return [*names, *first.columns]


def _is_number(text: str) -> bool:
    return math.isfinite(number(text))
