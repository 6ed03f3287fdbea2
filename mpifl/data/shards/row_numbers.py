"""Where each example of a shard was given: `SPLIT/row`, int64 [n], the number of its row or record; and
`SPLIT/id`, its id as text. Both are optional, and training reads none of them.

Ids lie as the bytes of their UTF-8 one after another, uint8, with `SPLIT/id.offsets`, int64 [n + 1], as
ragged arrays do: readers of shards take no texts of HDF5, which may lie anywhere in a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mpifl.common import ShardError
from mpifl.data import OFFSETS, Ragged, ragged_of
from mpifl.data.hdf5 import Opened, opened
from mpifl.data.shards.federation_spec import ShardEntry

if TYPE_CHECKING:
    import h5py

ROW, ID = "row", "id"
MOST_ID = 1 << 12
"""The most bytes of an id."""


@dataclass(frozen=True)
class Provenance:
    """Where examples were given.

    Attributes:
        rows: The number of each example's row or record, counted from 0 before any shuffle, int64 [n]; None
            if it is unknown.
        ids: The id of each example, its UTF-8 as uint8; None if they have none.
    """

    rows: np.ndarray | None = None
    ids: Ragged | None = None

    def take(self, index: np.ndarray) -> Provenance:
        """Return that of some examples."""
        rows = None if self.rows is None else self.rows[index]
        return Provenance(rows, None if self.ids is None else self.ids[index])

    @property
    def without_ids(self) -> Provenance:
        """Return the same without ids."""
        return replace(self, ids=None)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Return what a shard stores, by names in a split."""
        found = {} if self.rows is None else {ROW: self.rows}
        if self.ids is not None:
            found |= {ID: self.ids.joined, f"{ID}{OFFSETS}": self.ids.offsets}
        return found

    @property
    def bytes(self) -> int:
        """Return the bytes that a shard takes for it."""
        of_rows = 0 if self.rows is None else self.rows.nbytes
        return of_rows + (0 if self.ids is None else int(self.ids.lengths.sum()) + 8 * len(self.ids) + 8)


def ids_of(texts: Iterable[str | None]) -> Ragged:
    """Return texts as a shard stores them; None is an empty one."""
    stored = [(text or "").encode("utf-8", "surrogateescape") for text in texts]
    lengths = np.array([len(one) for one in stored], np.int64)
    return Ragged.flat(np.frombuffer(b"".join(stored), np.uint8), lengths)


def joined_ids(parts: Sequence[Ragged]) -> Ragged:
    """Return the ids of several parts one after another."""
    lengths = np.concatenate([part.lengths for part in parts])
    return Ragged.flat(np.concatenate([part.joined for part in parts]), lengths)


def texts_of(ids: Ragged) -> np.ndarray:
    """Return ids as an array of texts [n]; UnicodeDecodeError if one is not UTF-8."""
    stored, offsets = ids.joined.tobytes(), ids.offsets.tolist()
    texts = [stored[start:stop].decode() for start, stop in pairwise(offsets)]
    return np.array(texts, np.str_)


def write_provenance(
    file: h5py.File, given: Mapping[str, Provenance], filters: Mapping[str, object] | None = None
) -> None:
    """Write where examples were given into an open shard, by split."""
    from mpifl.data.hdf5 import make_room

    for split, one in given.items():
        for name, array in one.arrays.items():
            make_room(file, f"{split}/{name}", array.shape, array.dtype, filters)
            file[f"{split}/{name}"][...] = array


def provenance_of(folder: Path, entry: ShardEntry) -> dict[str, Provenance]:
    """Return where the examples of a shard were given, by split; nothing of a split that does not say it.

    Raises:
        ShardError: the file cannot be read, or holds something else under these names.
    """
    path, found = Path(folder) / entry.file, dict[str, Provenance]()
    names = [f"{split}/{name}" for split in entry.examples for name in (ROW, ID, f"{ID}{OFFSETS}")]
    with opened(path, entry.bytes, None, (), names) as file:
        for split, length in entry.examples.items():
            one = Provenance(_rows(file, f"{split}/{ROW}", length), _ids(file, f"{split}/{ID}", length))
            if one.arrays:
                found[split] = one
    return found


def _rows(file: Opened, name: str, length: int) -> np.ndarray | None:
    if (stored := file.sets.get(name)) is None:
        return None
    if stored.shape != (length,) or stored.dtype.name != "int64":
        raise _other(file.path, name, f"{stored.dtype.name} {list(stored.shape)}", f"int64 [{length}]")
    return file.array(name)


def _ids(file: Opened, name: str, length: int) -> Ragged | None:
    if (stored := file.sets.get(name)) is None:
        return None
    offsets = file.sets.get(f"{name}{OFFSETS}")
    if stored.dtype.name != "uint8" or len(stored.shape) != 1:
        raise _other(file.path, name, f"{stored.dtype.name} {list(stored.shape)}", "uint8 [bytes]")
    if offsets is None or offsets.shape != (length + 1,) or offsets.dtype.name != "int64":
        raise _other(file.path, name, "no such offsets", f"{name}{OFFSETS} of int64 [{length + 1}]")
    where, at = f"{file.path}: {name}", file.array(f"{name}{OFFSETS}")
    ids = ragged_of(where, file.array(name), at, MOST_ID)
    try:
        ids.joined.tobytes().decode()
    except UnicodeDecodeError:
        raise _other(file.path, name, "bytes that are no UTF-8", "texts in UTF-8") from None
    return ids


def _other(path: Path, name: str, found: str, wanted: str) -> ShardError:
    return ShardError(f"{path}: {name} is {found}, it must be {wanted}; partition again or restore it")
