"""A first spec of a table, guessed from its rows, for its owner to read through."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.tables.files import kind_of, parts_of, separated, spec_beside
from data_prep.tables.guessing import (
    Guess,
    classes_of,
    coded_apart,
    codes_told,
    counted_classes,
    guessed,
    quoted,
    unlike_levels,
)
from data_prep.tables.label import TAKES, event_told
from data_prep.tables.persons import grouped, kept_whole, not_in_common, of_persons
from data_prep.tables.site_specs import (
    OwnSpecs,
    SiteSpec,
    group_of_others,
    not_stated,
    read_by,
    shared_names,
    site_specs,
    standardised,
    stated_classes,
    stated_guess,
)
from data_prep.tables.spec import TableSpec
from data_prep.tables.values import (
    MISSING,
    PLAIN,
    Notation,
    Tally,
    listed,
    marked,
    number,
    tallied,
)
from mpifl.common import InputError, did_you_mean, visible

KINDS = tuple(kind for kind in TAKES if kind != "none")
"""What a label may be."""
FEWEST_ROWS = 3
"""Rows from which on a first line that is unlike all others is taken for names."""

IN_UNITS = 'standardise = "none"'


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
        by_own: Whether the spec beside one table alone says how that is read, as those of several do.
        in_units: Whether numbers stay in the columns' units, as coefficients need it.
    """

    kind: str
    columns: tuple[str, ...]
    silo: str | None = None
    names: tuple[str, ...] = ()
    group: str | None = None
    encoding: str = "utf-8"
    by_own: bool = False
    in_units: bool = False

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
        beside: The specs that lay beside tables of several sites, by the tables.
        numbers: Whether the label of categories has numbers alone.
        apart: Whether tables code two classes of it otherwise.
    """

    text: str
    told: list[str]
    classes: dict[str, int]
    own: dict[Path, str]
    beside: dict[Path, SiteSpec]
    numbers: bool = False
    apart: bool = False


def draft(tables: Path | Sequence[Path], learned: Learned, out: Path | None = None) -> Drafted:
    """Return a spec for a table, CSV or Parquet by its ending, or one for the tables of several sites.

    Columns are guessed from all rows: numbers, dates, or a few texts. Others are left out, and told. Of
    several tables the columns that all have are taken, with levels and classes, and statistics of all sites.
    A spec beside one of them says how that is read, and what its columns are at all sites.

    Args:
        tables: The table, or those of several sites.
        learned: What is learned of it.
        out: Where the spec will be written.

    Raises:
        InputError: a table cannot be read, or lacks a column that is named.
    """
    paths = [tables] if isinstance(tables, Path) else [*tables]
    learned, beside = _with_own(paths, learned, out)
    names, lacking = _shared_names(paths, learned, beside)
    features = _features(paths, learned, names)
    specs = _readings(paths, learned, names, beside)
    tallies, rows, notations = tallied(paths, specs)
    _check_first(paths[0], tallies, bool(learned.names))
    apart, own = len(paths) > 1, [*beside.values()]
    said = {one: found.in_orders(tallies[one]) for one in features if (found := stated_guess(one, own))}
    guesses = {one: said.get(one) or guessed(one, tallies[one], stated=apart) for one in features}
    of_label = _of_label(learned, tallies, own, apart)
    group = learned.group or of_persons(guesses)
    label, classes = tallies[learned.columns[0]], stated_classes(own)
    codes = coded_apart(learned.columns[0], label, paths) if of_label and not classes else []
    unread = {path: spec for path, spec in zip(paths, specs, strict=True) if path not in beside}
    lines = _general(paths, rows, learned, [*of_label, *codes], group, unread)
    most, others = _manners(paths, notations, guesses, beside)
    told = _told([*guesses.values()], [*of_label, *codes])
    told += [*event_told(learned.kind, last := learned.columns[-1], tallies[last].texts), *lacking]
    told += not_in_common(paths, specs, beside, group) + not_stated(features, own, tallies)
    told += unlike_levels(guesses, learned.columns[bool(codes) : 1], tallies, paths)
    told += [*kept_whole(guesses, group), *marked(tallies), *read_by(beside)]
    told += codes_told(guesses, learned.columns[: bool(of_label)], tallies)
    told += _apart(most, others)
    told += [] if beside or len({*notations}) > 1 else _written(tallies, most.notation)
    counts = counted_classes(label, classes) if of_label else {}
    by_table = {path: one.written(lines) for path, one in others.items()}
    seen = {"numbers": not (label.odd or label.code), "apart": bool(codes)}
    return Drafted(most.written(lines), told, counts, by_table, beside, **seen)


class _Manner(NamedTuple):
    """How a table writes numbers, and the lines of its columns, which have the orders of dates."""

    notation: Notation
    columns: tuple[str, ...]

    def written(self, lines: Sequence[str]) -> str:
        """Return a spec, by its lines before those of notation and columns."""
        return "\n".join([*lines, *self.notation.written(), "", "[features]", *self.columns, ""])


def _manners(
    paths: Sequence[Path], notations: Sequence[Notation], guesses: Mapping[str, Guess], own: Collection[Path]
) -> tuple[_Manner, dict[Path, _Manner]]:
    """Return how most tables without a spec of their `own` write values, and how the others of them do."""
    every = [
        _Manner(way, tuple(one.of_table(at) for one in guesses.values())) for at, way in enumerate(notations)
    ]
    plain = {path: one for path, one in zip(paths, every, strict=True) if path not in own}
    most = Counter(plain.values() or every).most_common(1)[0][0]
    return most, {path: one for path, one in plain.items() if one != most}


def _general(
    paths: Sequence[Path],
    rows: int,
    learned: Learned,
    of_label: Sequence[Guess],
    group: str | None,
    specs: Mapping[Path, TableSpec],
) -> list[str]:
    """Return the lines of a spec before those of its columns."""
    return [
        f"# What the columns of {', '.join(visible(path.name) for path in paths)} mean.",
        f"# It is guessed from all {rows:,} rows: read it through.",
        *learned.written(),
        *(guess.line for guess in of_label if guess.line),
        *grouped(group),
        f"missing = [{', '.join(map(quoted, MISSING))}]",
        standardised(paths)
        if not learned.in_units
        else f"{IN_UNITS}  # so coefficients are in columns' units",
        *_delimited(specs),
        *([f"encoding = {quoted(learned.encoding)}"] if learned.encoding != Learned.encoding else []),
    ]


def _with_own(paths: Sequence[Path], learned: Learned, out: Path | None) -> tuple[Learned, OwnSpecs]:
    """Return what is learned, with the group of which specs beside tables speak, and these specs."""
    read = paths if len(paths) > 1 or learned.by_own else []
    found = site_specs(read, learned.kind, learned.columns, {"silo": learned.silo}, out)
    group = learned.group or group_of_others(paths, found, learned.encoding)
    of = {"silo": learned.silo, "group": group}
    return replace(learned, group=group), site_specs(read, learned.kind, learned.columns, of, out)


def _shared_names(
    paths: Sequence[Path], learned: Learned, own: Mapping[Path, SiteSpec]
) -> tuple[list[str], list[str]]:
    """Return the names of the columns that all tables have, and what to say of the others."""
    kinds = [kind_of(path) for path in paths]
    if learned.names and "parquet" in kinds:
        path = paths[kinds.index("parquet")]
        raise InputError(f"--names: {path} is Parquet, which names its columns; leave it out")
    if learned.names:
        return [*learned.names], []
    named = {*learned.columns, learned.silo, learned.group} - {None}
    return shared_names(paths, [name for name in named if name], own, learned.encoding)


def _readings(
    paths: Sequence[Path], learned: Learned, names: Sequence[str], own: Mapping[Path, SiteSpec]
) -> list[TableSpec]:
    """Return the specs by which the tables are read, all values as texts."""
    known: dict[str, Any] = {"encoding": learned.encoding, "missing": (), "names": learned.names or None}
    texts = {name: {"kind": "categorical"} for name in names}
    spec = TableSpec.model_validate({**known, "features": texts})
    return [own[path].reading(texts) if path in own else spec for path in paths]


def _of_label(
    learned: Learned, tallies: Mapping[str, Tally], own: Sequence[SiteSpec], apart: bool
) -> list[Guess]:
    """Return what is said of the classes of a label of categories."""
    if learned.kind != "categorical":
        return []
    if not (classes := stated_classes(own)):
        return [classes_of(name, tallies[name], stated=apart) for name in learned.columns]
    tally, known = tallies[learned.columns[0]], {text for one in classes for text in one}
    other = [f"'{text}' {times:,} times" for text, times in tally.texts.items() if text not in known]
    what = f"label: {', '.join(other)}, which {own[0].path.name} does not list in classes; add it there"
    return [Guess(f"classes = {listed(classes)}", what if other else "")]


def _delimited(specs: Mapping[Path, TableSpec]) -> list[str]:
    """Return the line of the delimiter, if all files have one that is no comma."""
    parts = [
        (part, spec)
        for path, spec in specs.items()
        if kind_of(path) == "csv"
        for part in parts_of("csv", path)
    ]
    found = {separated(part.path, spec, part.columns).delimiter for part, spec in parts} - {None}
    return [f"delimiter = {quoted(one)}" for one in found if one and one != ","] if len(found) == 1 else []


def _told(features: list[Guess], of_label: list[Guess]) -> list[str]:
    """Return what is to be told of columns one by one, and whether none is left as a feature."""
    told = [guess.told for guess in (*features, *of_label) if guess.told]
    none = all(guess.line.startswith("#") for guess in features)
    line = 'no column is left as a feature: add one to the spec, for example age = "numeric"'
    return [*told, *([line] if none else [])]


def _check_first(path: Path, tallies: Mapping[str, Tally], named: bool) -> None:
    """Refuse names for a table whose first line has a text where all others have numbers."""
    for name, tally in tallies.items() if named else ():
        alone = tally.odd == 1 and tally.known > FEWEST_ROWS and tally.first == tally.first_odd
        if alone:
            what = f"{name} is {tally.first}, and a number in every other row"
            raise InputError(f"{path}: {what}: a line of names; leave --names out, or remove the line")


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


def _apart(most: _Manner, others: Mapping[Path, _Manner]) -> list[str]:
    """Say which tables write numbers or dates otherwise than most, and where their own specs stand."""
    said = []
    for path, one in others.items():
        where = f"in its own spec {spec_beside(path)}"
        if one.notation != most.notation:
            way = " and ".join(one.notation.written()) or 'decimal = "."'
            said.append(f"numbers: {path.name} has {way}, {where}")
        if dates := [line for line, usual in zip(one.columns, most.columns, strict=True) if line != usual]:
            said.append(f"dates: {path.name} has {'; '.join(dates)}, {where}")
    return said


def _is_number(text: str) -> bool:
    return math.isfinite(number(text))
