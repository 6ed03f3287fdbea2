"""The group (such as a person) of each example of a shard: `SPLIT/group`, int64 [n], numbers that reveal no
id."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mpifl.common import ShardError
from mpifl.data.hdf5 import opened
from mpifl.data.shards.column_spec import VerticalEntry
from mpifl.data.shards.federation_spec import ShardEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    import h5py

GROUP = "group"


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
