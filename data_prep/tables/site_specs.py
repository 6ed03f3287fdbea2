"""Specs that lie beside the tables of several sites: how each is read, and what they say of columns."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.tables.files import header_of, kind_of, names_of_parquet, parts_of, spec_beside
from data_prep.tables.guessing import Guess, key_of, quoted
from data_prep.tables.spec import TableSpec, read_spec
from data_prep.tables.table_column import Column
from data_prep.tables.values import MISSING, Tally, is_named_id, is_of_persons
from mpifl.common import InputError, choices, did_you_mean

OF_FILE = ("rename", "factor", "format")
"""What a spec says of a column in its own site's file alone."""
MOST_NAMED = 5
"""Levels in a line."""
NOTATION = ("encoding", "delimiter", "decimal", "thousands", "missing", "names", "comment")


class SiteSpec(NamedTuple):
    """A site's own spec.

    Attributes:
        path: Its file.
        spec: What that says.
        called: What it calls label, silo and group, by what all sites call them.
    """

    path: Path
    spec: TableSpec
    called: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """The columns that it has, as all sites call them."""
        return [*self.spec.features, *self.called]

    def reading(self, columns: Mapping[str, Mapping[str, Any]]) -> TableSpec:
        """Return a spec that reads columns of the site's file, by what is said of each, as all sites call
        them."""
        told: dict[str, Any] = {key: getattr(self.spec, key) for key in NOTATION}
        told["missing"] = (*self.spec.missing, *MISSING)
        told["features"] = {name: {**one, "rename": self._in_file(name)} for name, one in columns.items()}
        return TableSpec.model_validate({**told, "standardise": "own"})

    def _in_file(self, name: str) -> str:
        return self.called.get(name) or self.spec.in_file(name)


OwnSpecs = dict[Path, SiteSpec]
"""Specs by the tables that they lie beside."""


def site_specs(
    paths: Sequence[Path],
    kind: str,
    columns: Sequence[str],
    others: Mapping[str, str | None],
    out: Path | None,
) -> dict[Path, SiteSpec]:
    """Return the specs beside the tables of several sites, by the tables.

    Args:
        paths: The tables.
        kind: The kind of label.
        columns: What is learned, as all sites call it.
        others: What all sites call `silo` and `group`, if there are such.
        out: The file of the spec that is made, which is no table's own.

    Raises:
        InputError: a spec cannot be read, or it learns something else.
    """
    found = {}
    for path in paths:
        file = spec_beside(path)
        if file.exists() and not (out is not None and out.exists() and file.samefile(out)):
            spec = read_spec(file)
            _check_label(path, file, spec, kind, columns)
            named = {name: getattr(spec, key) for key, name in others.items() if name}
            called = {**dict(zip(columns, spec.label.read, strict=True)), **named}
            found[path] = SiteSpec(file, spec, {name: own for name, own in called.items() if own})
    if found and len(found) == len(paths):  # else a table without a spec must have these columns
        own = [one.spec for one in found.values()]
        for name in columns:
            _check_called("--label", name, {one for spec in own for one in spec.label.read})
        if silo := others.get("silo"):
            _check_called("silo", silo, {spec.silo for spec in own if spec.silo})
    return found


def _check_called(what: str, name: str, known: Collection[str]) -> None:
    """Refuse a name of a column that no site's own spec has: it is probably misspelled."""
    if name not in known:
        said = f"{what} {name}: no spec beside the tables has this column"
        raise InputError(f"{said}; {choices(name, sorted(known))}")


def _check_label(path: Path, file: Path, spec: TableSpec, kind: str, columns: Sequence[str]) -> None:
    """See that a site's own spec learns what is asked for."""
    own, wanted = spec.label.read, ", ".join(columns)
    if spec.label.kind != kind or len(own) != len(columns):
        what = f"its label is {spec.label.kind}, of {', '.join(own) or 'no column'}"
        raise InputError(f"{file}: {what}, and {kind}, of {wanted}, is asked for; write it alike")
    if [*own] != [*columns] and not {*columns}.isdisjoint(header(path, spec.encoding)):
        what = f"learns {', '.join(own)}, and --label is {wanted}, which {path.name} has, too"
        raise InputError(f"{file}: {what}; correct it, or remove the file")


def group_of_others(paths: Sequence[Path], own: Mapping[Path, SiteSpec], encoding: str) -> str | None:
    """Return what the other tables call the group of which a site's own spec speaks: the first column that
    its name makes an id of persons in all of them."""
    plain = [header(path, encoding) for path in paths if path not in own]
    if not plain or not all(one.spec.group for one in own.values()) or not own:
        return None
    persons = (name for name in plain[0] if is_named_id(name) and is_of_persons(name))
    return next((name for name in persons if all(name in names for names in plain)), None)


def header(path: Path, encoding: str) -> list[str]:
    """Return the names of a table's columns."""
    kind = kind_of(path)
    first = parts_of(kind, path)[0]
    names = names_of_parquet(first.path) if kind == "parquet" else header_of(first.path, encoding)[0]
    return [*names, *first.columns]


def stated_guess(name: str, own: Iterable[SiteSpec]) -> Guess | None:
    """Return what a site's own spec says of a column for all sites; None if none says it all."""
    column = next((one.spec.features[name] for one in own if name in one.spec.features), None)
    if column is None or (column.kind == "categorical" and not column.levels):
        return None
    told = column.model_dump(mode="json", exclude_none=True, exclude_defaults=True, exclude={*OF_FILE})
    value = ", ".join(f"{key} = {json.dumps(one, ensure_ascii=False)}" for key, one in told.items())
    return Guess(f"{key_of(name)} = {{ {value} }}")


def not_stated(names: Iterable[str], own: Iterable[SiteSpec], tallies: Mapping[str, Tally]) -> list[str]:
    """Say what tables have in a column of which a site's own spec speaks for all, and it does not take."""
    said, specs = [], [*own]
    for name in names:
        one = next((one for one in specs if name in one.spec.features), None)
        if one is None or stated_guess(name, [one]) is None:
            continue
        column, tally = one.spec.features[name], tallies[name]
        known = {text for level in column.levels or () for text in level}
        if other := [repr(text) for text in tally.texts if text not in known] if column.levels else []:
            shown = ", ".join(other[:MOST_NAMED]) + ", ..." * (len(other) > MOST_NAMED)
            said.append(f"levels: {name} has {shown}, which {one.path.name} does not list; add it there")
        if tally.gaps and column.missing is None:
            to_do = f"say missing there, as missing = {quoted('mean' if column.counted else 'level')}"
            said.append(f"gaps: {name} has {tally.gaps:,} missing, and {one.path.name} refuses them; {to_do}")
    return said


def stated_classes(own: Iterable[SiteSpec]) -> tuple[tuple[str, ...], ...]:
    """Return the classes by their spellings, as the first site's own spec that states them has them."""
    return next((one.spec.classes for one in own if one.spec.classes), ())


def shared_names(
    paths: Sequence[Path], named: Sequence[str], own: Mapping[Path, SiteSpec], encoding: str
) -> tuple[list[str], list[str]]:
    """Return the names of the columns that all tables have, and what to say of the others.

    Args:
        paths: The tables.
        named: The columns that each must have.
        own: The specs beside some of them.
        encoding: How the characters of the others are written.

    Raises:
        InputError: a table lacks a column that is named and others have.
    """
    headers = [own[path].names if path in own else header(path, encoding) for path in paths]
    without = {
        name: [path for path, names in zip(paths, headers, strict=True) if name not in names]
        for name in dict.fromkeys(name for names in headers for name in names)
    }
    for name in sorted(named):
        if lack := without.get(name):
            _check_somewhere(name, lack[0], headers[paths.index(lack[0])], paths, encoding)
            has = next(path for path in paths if path not in lack)
            there = ", ".join(headers[paths.index(lack[0])])[:200]
            what = f"has no column '{name}', which {has.name} has; its columns are {there}"
            remedy = f"call it so, or write a spec of its own beside it, {spec_beside(lack[0]).name}"
            raise InputError(f"{lack[0]}: {what}; {remedy}, which may name label, silo and group otherwise")
    shared = [name for name, lack in without.items() if not lack or name in named]
    lacking = {name: lack for name, lack in without.items() if name not in shared}
    told = [f"left out: {name}, {_lacking(name, lack, own)}" for name, lack in lacking.items()]
    return shared, [line + _renamed(name, lacking, paths) for name, line in zip(lacking, told, strict=True)]


def _lacking(name: str, lack: Sequence[Path], own: Mapping[Path, SiteSpec]) -> str:
    """Say which tables lack a column, and which specs leave out one that their tables have."""
    spared = [
        own[path].path for path in lack if path in own and name in header(path, own[path].spec.encoding)
    ]
    others = [path for path in lack if path not in own or own[path].path not in spared]
    said = [f"which {_names(spared)} leaves out"] if spared else []
    return " and ".join([*said, *([f"not in {_names(others)}"] if others else [])])


def _check_somewhere(
    name: str, lacks: Path, names: Sequence[str], paths: Sequence[Path], encoding: str
) -> None:
    """Refuse a column that no table has, though a spec beside one may give it that name: it is misspelled."""
    if not any(name in header(path, encoding) for path in paths):
        said = f"no table has a column '{name}'; {did_you_mean(name, names)}"
        raise InputError(f"{lacks}: {said}its columns are {', '.join(names)[:200]}")


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths)


def _renamed(name: str, lacking: Mapping[str, Sequence[Path]], paths: Sequence[Path]) -> str:
    """Ask whether a column of the first table has another name in the tables that lack it; "" if it cannot
    be one of their columns."""
    if is_named_id(name):  # no feature, whose name a spec could give
        return ""
    own = [path for path in paths if path not in lacking[name]]
    others = [other for other, lack in lacking.items() if [*lack] == own]
    if paths[0] not in own or not others:
        return ""
    close = did_you_mean(name, others).split("'")
    other = close[1] if len(close) > 1 else others[0] if len(others) == 1 else ""
    where = ", ".join(spec_beside(path).name for path in lacking[name])
    remedy = f"add {name} to the spec, and in a copy of it, {where}, say rename = {quoted(other)}"
    return f"; if {other} is the same column, {remedy}" if other else ""


def number_columns(names: Iterable[str], own: SiteSpec | None) -> dict[str, dict[str, Any]]:
    """Return columns that are read as numbers, in the unit of all sites."""
    plain = {"kind": "numeric", "missing": "mean"}
    columns: Mapping[str, Column] = own.spec.features if own else {}
    factors = {name: columns[name].factor for name in names if name in columns}
    return {name: {**plain, **({"factor": of} if (of := factors.get(name)) else {})} for name in names}


def standardised(paths: Sequence[Path]) -> str:
    """Return the line of how numbers are standardised: of several sites by what each may share."""
    if len(paths) == 1:
        return 'standardise = "own"'
    names = [spec_beside(path).stem for path in paths]
    if twice := [path for path, name in zip(paths, names, strict=True) if names.count(name) > 1]:
        raise InputError(f"{twice[0]} and {twice[1]}: tables of two sites are called alike; rename one")
    files = ", ".join(quoted(f"{name}.json") for name in names)
    return f"standardise = [{files}]  # of `data-prep statistics`, one of each site"


def read_by(own: Mapping[Path, SiteSpec]) -> list[str]:
    """Say which tables are read by specs beside them, and what these lack."""
    found = []
    for path, one in own.items():
        lacks = "; where tables stay at their sites, it needs 'standardise' as all sites have it"
        found.append(f"{path.name}: read by its own spec {one.path}{lacks * (not one.spec.statistics)}")
    return found
