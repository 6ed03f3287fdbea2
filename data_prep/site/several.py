"""The tables of several sites at one place: statistics, spec, shards and federation in one go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from data_prep.cut import WriteOptions
from data_prep.dataset import codes_told, ids_told, lone_levels, odd_told, units_told
from data_prep.schemes import Shares
from data_prep.site.agreement import assemble, new_spec, spec_of_table
from data_prep.site.site import Site, import_site
from data_prep.sources import kept_words
from data_prep.tables import (
    PARTED,
    SiteTable,
    check_label,
    is_table,
    kind_of,
    learned_of_rows,
    names_in,
    persons_in,
    pooled,
    read_spec,
    spec_beside,
)
from data_prep.write import AGREED, check_free, written_atomically
from mpifl.common import InputError, write_atomic
from mpifl.data.shards import FederationSpec


@dataclass(frozen=True)
class Holding:
    """What every site holds out, and keeps together.

    Attributes:
        shares: What is held out.
        seed: What it is drawn by.
        group: The column that says whose a row is.
        order: The column by which the last rows are held out.
    """

    shares: Shares
    seed: int = 0
    group: str | None = None
    order: str | None = None


class Joined(NamedTuple):
    """The federation that the tables of sites became, and what is doubtful between them, a line each.

    `learned` tells whether columns have means or deviations of the rows of all sites.
    """

    spec: FederationSpec
    told: list[str]
    learned: bool


def sites_of(given: Sequence[Path]) -> dict[str, Path]:
    """Return the tables of sites by the sites' names, those of the files or folders; a folder alone holds
    them.

    Raises:
        InputError: there is one alone, a table is not there, or two are called alike.
    """
    paths = list(given)
    if len(given) == 1 and given[0].is_dir():
        inside = sorted(path for path in given[0].iterdir() if not path.name.startswith((".", "_")))
        paths = [path for path in inside if path.is_dir() or is_table(path)]
    if lacking := [path for path in paths if not path.exists()]:
        raise InputError(f"{lacking[0]}: is not there; name a table, or a folder of them, of each site")
    if len(paths) < 2:
        what = f"{len(paths)} found; name a table or folder of each site, or a folder that holds them"
        raise InputError(f"{given[0]}: has tables of at least 2 sites, {what}")
    if empty := [one for one in paths if one.is_dir() and not any(map(is_table, one.rglob("*")))]:
        images = "folders of images become silos by: partition images --silo parent --scheme natural"
        raise InputError(f"{empty[0]}: has no tables; {images}")
    names = [spec_beside(path).stem for path in paths]
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        here = " and ".join(str(path) for path, name in zip(paths, names, strict=True) if name == twice[0])
        raise InputError(f"{here}: are both of a site '{twice[0]}'; rename one")
    return dict(zip(names, paths, strict=True))


def join_sites(
    given: Mapping[str, Path],
    spec: Path | None,
    out: Path,
    name: str | None,
    holding: Holding,
    manner: WriteOptions | None = None,
) -> Joined:
    """Make the shards of several sites' tables, as the sites would one by one.

    Args:
        given: The tables by the sites' names.
        spec: What columns mean, where no spec lies beside a site's table.
        out: The folder to make: shards, `federation.json`, and `agreed/`.
        name: The federation's name; the folder's by default.
        holding: What is held out.
        manner: How shards are written.

    Raises:
        InputError: something given is wrong; then nothing is left in `out`.
    """
    check_free(out)
    tables = {site: _table(site, path, spec) for site, path in given.items()}
    found = pooled(tables, [f"{site}.json" for site in given])
    told = shared_groups(tables, holding.group)
    with written_atomically(out) as folder:
        agreed = folder / AGREED
        agreed.mkdir()
        for site, moments in found.statistics.items():
            moments.write(agreed / f"{site}.json")
            write_atomic(agreed / f"{site}.toml", tomli_w.dumps(found.specs[site]).encode())
        _agree(agreed / "agreed.json", agreed / f"{next(iter(given))}.toml", name or out.resolve().name)
        for number, (site, path) in enumerate(given.items()):
            kind, words = kind_of(path), [f"spec={agreed / f'{site}.toml'}"]
            more: dict[str, Any] = {"shares": holding.shares, "manner": manner}
            more["source_options"] = kept_words(kind, holding.group, holding.order, words)
            import_site(kind, path, agreed / "agreed.json", folder, Site(number, site), holding.seed, **more)
        made = assemble(folder)
        looks = (units_told, codes_told, odd_told, lone_levels, ids_told)
        doubted = [line for look in looks for line in look(folder, made)]
        return Joined(made, [*doubted, *told], any(learned_of_rows(one.spec) for one in tables.values()))


def _table(site: str, path: Path, spec: Path | None) -> SiteTable:
    """Return a site's table with its spec: the one beside it, or that of all sites."""
    beside = spec_beside(path)
    used = beside if beside.exists() else spec
    if used is None:
        raise InputError(f"--spec: not given, and {site} has none beside its table ({beside}); draft one")
    found = read_spec(used)
    check_label(used, found)
    if found.standardise == "train":
        what = "standardise: 'train', and what sites share are statistics of all their rows"
        raise InputError(f"{used}: {what}; say 'own'")
    return SiteTable(path, found)


def _agree(path: Path, table: Path, name: str) -> FederationSpec:
    """Write the spec of the federation, by the spec of a table."""
    one = spec_of_table(table)
    targets = one.targets.model_dump() if one.targets else None  # type: ignore[union-attr]  # a table has one
    names: dict[str, Any] = {"class_names": one.class_names, "feature_names": one.feature_names}
    encoding = one.source.get("encoding")
    return new_spec(path, name, one.single.model_dump(), one.classes, targets, encoding, **names)


def shared_groups(tables: Mapping[str, SiteTable], group: str | None) -> list[str]:
    """Return lines about sites without a group, and about groups with rows at two sites.

    Args:
        tables: The tables by the sites' names.
        group: The column that says it, if the specs do not.

    Raises:
        InputError: a table lacks the column.
    """
    of = {site: group or one.spec.group for site, one in tables.items()}
    said = _unkept(tables, of)
    found = {site: names_in(tables[site], name) for site, name in of.items() if name is not None}
    pairs = Counter({(a, b): len(found[a] & found[b]) for a, b in combinations(found, 2)})
    ((first, second), most), *_ = pairs.most_common(1) or [(("", ""), 0)]
    if not most:
        return said
    times = Counter(name for names in found.values() for name in names)
    count, column = sum(1 for often in times.values() if often > 1), of[first]
    what = f"{count:,} group{'s' if count > 1 else ''} of {column} {'have' if count > 1 else 'has'} rows at"
    where = f"{what} two sites or more ({most:,} at {first} and {second})"
    remedy = (
        "if they are the same persons, keep each at one site: else one site trains on another's test rows"
    )
    return [*said, f"{where}; {remedy}. Where each site numbers for itself, equal numbers mean nothing"]


def _unkept(tables: Mapping[str, SiteTable], of: Mapping[str, str | None]) -> list[str]:
    """Say at which sites nothing keeps the rows of a person together, though a column there or the spec of
    another site says whose a row is."""
    said = []
    for site, one in tables.items():
        if of[site] is not None:
            continue
        if column := persons_in(one):
            what = f"{site}: {column} says whose a row is, and its spec names no group"
            said.append(f"{what}: {PARTED}; say group = '{column}' in it")
        elif named := {other: group for other, group in of.items() if group is not None}:
            other, group = next(iter(named.items()))
            what = f"{site}: its spec names no group, as that of {other} does ({group})"
            said.append(f"{what}; if a person has several rows there, {PARTED}")
    return said
