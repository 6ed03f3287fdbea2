"""What the examples of a shard are taken from, and what of their origin it keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_prep.dataset import Dataset, renumbered
from data_prep.write import NewShard, Section, kept_in
from mpifl.common import InputError, ShardError
from mpifl.data.shards import Provenance


class Origin(NamedTuple):
    """What examples are taken from: features, targets, whose each is and where it was given, if known."""

    x: Any
    y: Any
    groups: np.ndarray | None
    given: Provenance | None


def keeping(data: Dataset, keep: str | None) -> Dataset:
    """Return a data set with that of its origin which shards are to keep.

    Args:
        data: As its source read it.
        keep: One of `KEEPS`; None is the rows' numbers, and ids where the source's description names them.

    Raises:
        InputError: ids are asked for, and the source has none.
    """
    if keep == "none":
        return replace(data, given=None, given_of_test=None)
    ids = keep == "id" or (keep is None and data.ids_asked)
    if keep == "id" and (data.given is None or data.given.ids is None):
        to_do = "name their column or array by --option id=NAME, or id in a table's spec"
        raise InputError(f"--keep: id given, but {data.where} has no ids; {to_do}")
    own = _kept(data.given, len(data), ids)
    of_test = data.test and _kept(data.given_of_test, len(data.test[1]), ids)
    return replace(data, given=own, given_of_test=of_test)


def _kept(given: Provenance | None, length: int, ids: bool) -> Provenance:
    rows = np.arange(length) if given is None or given.rows is None else given.rows
    return Provenance(rows, given.ids if given and ids else None)


def check_kept(file: Path, shard: NewShard, keep: str | None) -> None:
    """Refuse a finished shard that has not what is asked for; without `keep`, any will do.

    Raises:
        ShardError: it has not.
    """
    given = shard.sections[0].given
    wanted = set() if given is None else set(given.arrays)
    if keep is not None and (found := kept_in(file)) != wanted:
        told = ", ".join(sorted(name for name in found if "." not in name)) or "none"
        what = f"{file.parent} exists, its shards keep {told}, not --keep {keep}"
        raise ShardError(f"--out: {what}; remove it or name another")


def of_training(data: Dataset) -> Origin:
    """Return what the examples of silos are taken from."""
    return Origin(data.x, data.y, data.groups.of if data.groups else None, data.given)


def of_public(data: Dataset) -> Origin:
    """Return what public examples are taken from: all may see them, so they have no ids."""
    own = of_training(data)
    return own._replace(given=own.given and own.given.without_ids)


def of_testing(data: Dataset) -> Origin | None:
    """Return what the server's test set is taken from, if the source has one."""
    if data.test is None:
        return None
    return Origin(*data.test, data.groups.of_test if data.groups else None, data.given_of_test)


def shard_of(file: str, name: str, silo: int | None, of: Origin, splits: dict[str, np.ndarray]) -> NewShard:
    """Describe a shard by the positions of each split's examples in what they are taken from."""
    return NewShard(name, [section_of(file, split, silo, of, ids) for split, ids in splits.items()])


def section_of(file: str, split: str, silo: int | None, of: Origin, ids: np.ndarray) -> Section:
    """Describe a split by the positions of its examples in what they are taken from."""
    groups = None if of.groups is None else of.groups[ids]
    given = None if of.given is None else of.given.take(ids)
    return Section(file, split, silo, of.x, of.y, ids, groups=groups, given=given)


def numbered(*several: Sequence[NewShard]) -> tuple[list[NewShard], ...]:
    """Return shards whose groups are numbered anew, in the order in which they come."""
    sections = [one for shards in several for shard in shards for one in shard.sections]
    parts = iter(renumbered([one.groups for one in sections if one.groups is not None]))
    return tuple([_owned(shard, parts) for shard in shards] for shards in several)


def _owned(shard: NewShard, parts: Iterator[np.ndarray]) -> NewShard:
    """Return a shard whose sections have the next of some groups."""
    own = [one if one.groups is None else replace(one, groups=next(parts)) for one in shard.sections]
    return replace(shard, sections=own)
