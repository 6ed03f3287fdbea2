"""What the tables of several sites have in common: levels, classes and statistics of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_prep.tables.files import kind_of, pieces
from data_prep.tables.label import Label
from data_prep.tables.site_specs import SiteSpec
from data_prep.tables.spec import TableSpec
from data_prep.tables.surveying import Survey, survey
from data_prep.tables.values import MISSING, Moments, check_spellings, ordered, tallied


class SiteTable(NamedTuple):
    """A site's table, and its spec."""

    path: Path
    spec: TableSpec


class Pooled(NamedTuple):
    """What each site may share of its table, and its spec as its TOML file has it, with nothing left open."""

    statistics: dict[str, Moments]
    specs: dict[str, dict[str, Any]]


def pooled(sites: Mapping[str, SiteTable], files: Sequence[str]) -> Pooled:
    """Look through the tables of sites, by their names, and state in each site's spec what it leaves to the
    table: levels and classes that occur at any site, and statistics of all.

    Args:
        sites: The tables.
        files: Where the specs will find the statistics.

    Raises:
        InputError: a table is not what its spec says.
    """
    found = {name: survey(kind_of(one.path), one.path, one.spec) for name, one in sites.items()}
    moments = sum((one.moments for one in found.values()), Moments(columns={}))
    levels = _union(sites, found)
    specs = {name: _stated(one.spec, levels, moments, files) for name, one in sites.items()}
    return Pooled({name: one.moments for name, one in found.items()}, specs)


def names_in(table: SiteTable, column: str) -> Counter[str]:
    """Return how often each value of one column of a table occurs; it alone is read. Missing ones do not
    count.

    Raises:
        InputError: the table has no such column.
    """
    told = {"features": {}, "label": Label(kind="none"), "names": table.spec.names, "group": column}
    told |= dict.fromkeys(("silo", "id", "order", "order_format", "held_out"))
    read = pieces(kind_of(table.path), table.path, table.spec.model_copy(update=told))
    found: Counter[str] = Counter()
    for piece in read:
        names, codes = piece.columns[column].different
        for name, times in zip(names, np.bincount(codes[codes >= 0], minlength=len(names)), strict=True):
            found[name] += int(times)
    return found


def label_moments(
    paths: Sequence[Path], column: str, encoding: str = "utf-8", own: Mapping[Path, SiteSpec] | None = None
) -> tuple[float, float]:
    """Return mean and deviation of a column of numbers in tables, gaps left out; 0 and 1 without any.

    Args:
        paths: The tables.
        column: The column, as all sites call it.
        encoding: How characters are written.
        own: The specs that lie beside some of the tables.

    Raises:
        InputError: a table cannot be read, lacks the column, or it is none of numbers.
    """
    columns, beside = {column: {"kind": "numeric"}}, own or {}
    only = {"features": columns, "missing": MISSING, "standardise": "own", "encoding": encoding}
    plain = TableSpec.model_validate(only)
    specs = [beside[path].reading(columns) if path in beside else plain for path in paths]
    total = Moments(columns={})
    for path, read, way in zip(paths, specs, tallied(paths, specs).notations, strict=True):
        spec = read.model_copy(update={"decimal": way.decimal, "thousands": way.thousands or None})
        total += survey(kind_of(path), path, spec).moments
    return total.columns[column].mean, total.columns[column].deviation


def _union(sites: Mapping[str, SiteTable], found: Mapping[str, Survey]) -> dict[str, list[str]]:
    """Return the levels of columns that some site leaves open, and under "" the classes."""
    seen: dict[str, set[str]] = {}
    for name, one in sites.items():
        for column, values in {**found[name].levels, "": found[name].classes}.items():
            seen.setdefault(column, set()).update(values)
        stated = {column: kept.levels for column, kept in one.spec.features.items()} | {"": one.spec.classes}
        for column, spelled in stated.items():
            seen.setdefault(column, set()).update(each[0] for each in spelled or ())
    path, spec = next(iter(sites.values()))
    for column, values in seen.items():
        what = column or "".join(spec.label.read[:1])
        check_spellings(path, what, "levels" if column else "classes", ordered(values), spec.notation)
    return {column: ordered(values) for column, values in seen.items()}


def _stated(
    spec: TableSpec, levels: Mapping[str, list[str]], moments: Moments, files: Sequence[str]
) -> dict[str, Any]:
    """Return a site's spec as TOML has it, with what was left open."""
    told = spec.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    told |= {"missing": list(spec.missing)} if spec.says_missing else {}
    told |= {"classes": levels[""]} if spec.open_classes else {}
    told |= {"standardise": [*files]} if spec.standardise != "none" else {}
    features: dict[str, dict[str, Any]] = told["features"]
    for name, column in spec.features.items():
        if column.kind == "categorical" and not column.levels:
            constant = [str(column.constant)] if column.missing == "constant" else []
            features[name]["levels"] = ordered({*levels[name], *constant})
        if spec.standardise == "none" and column.missing == "mean" and column.mean is None:
            features[name]["mean"] = moments.columns[name].mean
    return told
