"""Whose the rows of tables are: the column that keeps those of a person together, and tables that lack it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from data_prep.tables.files import spec_beside
from data_prep.tables.guessing import Guess, quoted
from data_prep.tables.pooled_tables import SiteTable, names_in
from data_prep.tables.site_specs import OwnSpecs, header
from data_prep.tables.spec import TableSpec
from data_prep.tables.values import MISSING, is_named_id, is_of_persons

PARTED = "rows of one person may be both trained on and tested"
"""What becomes of rows that nothing keeps together."""


def of_persons(guesses: Mapping[str, Guess]) -> str | None:
    """Return the first id of a person that several rows share; one that its name calls an id."""
    repeated = [name for name, guess in guesses.items() if guess.repeats and is_named_id(name)]
    return next(filter(is_of_persons, repeated), None)


def grouped(group: str | None) -> list[str]:
    """Return the lines of a spec that say whose a row is: shards keep it, and predictions name it."""
    if not group:
        return []
    whole = f"group = {quoted(group)}  # rows of one stay together, in one split of one silo"
    return [f"id = {quoted(group)}  # shards keep it, and predictions name it", whole]


def kept_whole(guesses: Mapping[str, Guess], group: str | None) -> list[str]:
    """Say which rows stay together, and which others may have to."""
    if group:
        return [f"group: {group}, whose rows stay together; remove it if they are not one person's"]
    others = [name for name, guess in guesses.items() if guess.repeats]
    return [f"repeated: {name}; say group = {quoted(name)} if its rows are one person's" for name in others]


def persons_in(table: SiteTable) -> str:
    """Return the first column of a table that its name makes an id of persons, and in which one has several
    rows; "" without such a column. Features are none.

    Raises:
        InputError: the table cannot be read.
    """
    spec = table.spec
    features = {spec.in_file(name) for name in spec.features}
    names = [name for name in spec.names or header(table.path, spec.encoding) if name not in features]
    ids = (name for name in names if is_named_id(name) and is_of_persons(name))
    return next((name for name in ids if _repeats(table, name)), "")


def _repeats(table: SiteTable, name: str) -> bool:
    """Tell whether an id that is known has several rows."""
    return any(times > 1 for one, times in names_in(table, name).items() if one not in MISSING)


def not_in_common(
    paths: Sequence[Path], specs: Sequence[TableSpec], own: OwnSpecs, group: str | None
) -> list[str]:
    """Say which tables of several sites have a column of persons that the spec of all cannot name, since some
    lack it or call it otherwise.

    Args:
        paths: The tables.
        specs: How each is read.
        own: The specs that lie beside some of them.
        group: What all call that column, if they have it in common.

    Raises:
        InputError: a table cannot be read.
    """
    if group or len(paths) < 2:
        return []
    stated = {path: group for path, one in own.items() if (group := one.spec.group)}
    found = {
        path: stated.get(path) or persons_in(SiteTable(path, spec))
        for path, spec in zip(paths, specs, strict=True)
    }
    said = []
    if lost := {path: name for path, name in found.items() if name and path not in stated}:
        columns = " and ".join(f"{name} of {path.name}" for path, name in lost.items())
        copies = " and ".join(
            f"{spec_beside(path).name} with group = {quoted(name)}" for path, name in lost.items()
        )
        what = f"no column that all tables have says whose a row is: {columns} left out, so {PARTED}"
        said.append(f"warning: {what}. Write a copy of the spec beside each of these tables: {copies}")
    if stated and (without := [path.name for path, name in found.items() if not name]):
        what = f"{', '.join(without)}: no column says whose a row is, as group does in specs beside others"
        said.append(f"warning: {what}; if a person has several rows there, {PARTED}")
    return said
