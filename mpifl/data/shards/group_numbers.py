"""The group (such as a person) of each example of a shard: `SPLIT/group`, int64 [n], numbers that reveal no
id; and the class of each, without its x."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mpifl.common import Names, ShardError
from mpifl.data.hdf5 import opened
from mpifl.data.shards.federation_spec import ShardEntry
from mpifl.data.shards.vertical_spec import AnyEntry, AnySpec, VerticalEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    import h5py

GROUP = "group"
MOST_LOOKED_AT = 64
"""Shards whose groups are counted for `group_note`: those with the most examples a group."""


def write_groups(
    file: h5py.File, groups: Mapping[str, np.ndarray], filters: Mapping[str, object] | None = None
) -> None:
    """Write the group of each example into an open shard, int64 [n] by split."""
    from mpifl.data.hdf5 import make_room

    for split, numbers in groups.items():
        make_room(file, f"{split}/{GROUP}", (len(numbers),), np.dtype("int64"), filters)
        file[f"{split}/{GROUP}"][...] = numbers


def groups_of(folder: Path, entry: ShardEntry | VerticalEntry) -> dict[str, np.ndarray]:
    """Return the group of each example of a shard, int64 [n] by split; empty if the shard has no groups.

    Raises:
        ShardError: the file cannot be read, or does not fit its entry.
    """
    if entry.groups is None:
        return {}
    path, found = Path(folder) / entry.file, dict[str, np.ndarray]()
    names = {split: f"{split}/{GROUP}" for split in entry.examples if split in entry.groups}
    with opened(path, entry.bytes, None, (), list(names.values())) as file:
        for split, name in names.items():
            stored = file.sets.get(name)
            length = entry.examples[split]
            if stored is None or stored.shape != (length,) or stored.dtype.name != "int64":
                said = f"has no {name} of int64 [{length}]"
                raise ShardError(f"{path}: {said}; partition again or restore it")
            found[split] = file.array(name)
            if (count := len(np.unique(found[split]))) != entry.groups[split]:
                said = f"{name} is of {count} groups, federation.json says {entry.groups[split]}"
                raise ShardError(f"{path}: {said}; restore the right file")
    return found


def labels_of(folder: Path, entry: ShardEntry, split: str) -> np.ndarray:
    """Return the class number of each example of a split of a shard, int64 [n]; none where targets are no
    class numbers.

    Raises:
        ShardError: the file cannot be read, or is not as long as its entry says.
    """
    name = f"{split}/y"
    with opened(Path(folder) / entry.file, entry.bytes, None, (), [name]) as file:
        stored = file.sets.get(name)
        if stored is None or stored.dtype.name != "int64" or stored.shape != (entry.examples[split],):
            return np.empty(0, np.int64)
        return file.array(name)


def group_note(folder: Path, spec: AnySpec) -> str:
    """Return what an epsilon of one example promises the silo with the largest groups that are known, in one
    line; "" if no group is known to train with several examples.

    By group privacy (k epsilon, k e^((k - 1) epsilon) delta) protects k examples together (Dwork & Roth 2014,
    Theorem 2.2, and Vadhan 2017, Lemma 2.2).

    Args:
        folder: The shard folder. Where no shard can be read there, no size of a group is told.
    """
    shared = [entry for entry in spec.silos if _mean(entry) > 1]
    if not shared:
        return ""
    found = list[tuple[float, AnyEntry]]()
    for entry in sorted(shared, key=_mean, reverse=True)[:MOST_LOOKED_AT]:
        with suppress(ShardError):
            groups = groups_of(folder, entry)["train"]
            found.append((int(np.unique(groups, return_counts=True)[1].max()), entry))
    most, entry = max(found, key=lambda one: one[0], default=(0, max(shared, key=_mean)))
    name, many = Names([one.name for one in spec.silos])[entry.silo or 0], (entry.groups or {})["train"]
    has = f"silo {name} has {entry.examples['train']:,} examples of {many:,} groups"
    weaker = "; it protects a group less"
    if most:
        times = f"a group's epsilon is up to {most:,} times as large, and its delta more"
        weaker = f", up to {most:,} a group: {times}"
    return f"epsilon protects one example; {has}{weaker}"


def _mean(entry: AnyEntry) -> float:
    """Return a silo's training examples a group; 0 where groups are not known."""
    groups = (entry.groups or {}).get("train", 0)
    return entry.examples["train"] / groups if groups else 0.0
