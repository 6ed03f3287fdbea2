"""The shard format: one HDF5 file for each silo, and the `federation.json` that describes the folder.

A shard holds the data sets `SPLIT/x` and `SPLIT/y` for each of its splits: `train`, and perhaps `valid` and
`test`. They are contiguous, and uncompressed by default, so a reader maps them into memory without a copy.
For examples of unequal lengths, `SPLIT/x` [rows of all, ...] holds all rows in order, and `SPLIT/x.offsets`,
int64 [n + 1], where each example begins. The same holds for `SPLIT/y`. HDF5 does not notice a changed byte in
contiguous data; the sha256 of the whole file in `federation.json` reveals it.

This file needs no torch: `data_prep` is built on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mpifl.common import ShardError
from mpifl.data import (
    FEATURE_DTYPES as FEATURE_DTYPES,
    OFFSETS,
    Aims,
    Array,
    Column,
    Features as Features,
    Inputs,
    Ragged,
    Targets,
    aims_by_path,
    check_labels,
    place,
    ragged_of,
)
from mpifl.data.hdf5 import Opened, Stamp, StoredArray, opened, stamp_of
from mpifl.data.shards.federation_spec import (
    FederationSpec as FederationSpec,
    Seen,
    ShardEntry as ShardEntry,
    arrays_of,
    read_federation as read_federation,
    read_spec as read_spec,
    version_of,
)
from mpifl.data.shards.records import by_path
from mpifl.data.shards.shard_checks import FORMAT as FORMAT, check_attributes, check_sets

if TYPE_CHECKING:
    from mpifl.data.hdf5 import WrittenFile

SPLITS = ("train", "valid", "test", "public")
ATTRIBUTES = ("format", "format_version", "layout", "silo", "classes")

Arrays = Mapping[str, tuple[Array, Array]]
"""The splits of a shard by name, each as (x, y). x and y are arrays of shape [n, ...], or several arrays by
name."""


@dataclass(frozen=True)
class Split:
    """One split of a shard, mapped and not copied: x of shape `[n, *features]`, y [n, ...].

    If the federation has named arrays, x or y holds arrays by name, and so does `y_dtype`.
    """

    x: Array
    y: Array
    y_dtype: Seen | dict[str, Seen] = "int64"
    """The dtype of targets for a model."""

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, at: slice) -> Split:
        """Return some of the examples."""
        x, y = (
            {name: one[at] for name, one in held.items()} if isinstance(held, dict) else held[at]
            for held in (self.x, self.y)
        )
        return Split(x, y, self.y_dtype)

    @property
    def arrays(self) -> dict[str, Column]:
        """Return all arrays by their paths in the split: `x`, or `x/NAME`, and `y` likewise."""
        return by_path("x", self.x) | by_path("y", self.y)

    @property
    def stored(self) -> dict[str, np.ndarray]:
        """Return all arrays as a file stores them: for ragged ones the rows and the offsets."""
        lying: dict[str, np.ndarray] = {}
        for path, array in self.arrays.items():
            lying |= {path: array} if isinstance(array, np.ndarray) else _lying(path, array)
        return lying


def _lying(path: str, array: Ragged) -> dict[str, np.ndarray]:
    return {path: array.joined, f"{path}{OFFSETS}": array.offsets}


class Shard:
    """One opened and verified shard with its mapped splits."""

    def __init__(self, path: Path, splits: dict[str, Split], stamp: Stamp | None = None) -> None:
        self.path = path
        self.splits = splits
        self._stamp = stamp

    @property
    def written(self) -> bool:
        """Whether the mapped file was written to since it was opened. A file in its place does not count."""
        if self._stamp is None:
            return False
        try:
            now = stamp_of(self.path.stat())
        except OSError:
            return False
        return now[:2] == self._stamp[:2] and now != self._stamp

    def __contains__(self, split: str) -> bool:
        return split in self.splits

    def __getitem__(self, split: str) -> Split:
        return self.splits[split]


def open_shard(folder: Path, entry: ShardEntry, spec: FederationSpec, *, checksum: bool = True) -> Shard:
    """Open a shard of a folder and check it against its entry.

    Args:
        folder: The shard folder.
        entry: The shard's entry in `spec`.
        spec: The folder's `federation.json`.
        checksum: Read the whole file once and compare its sha256.

    Raises:
        ShardError: it is missing, cut short, altered, or of another format, shape or dtype. Or it has labels
            out of range, or values that are not finite.
    """
    path, sha256 = Path(folder) / entry.file, entry.sha256 if checksum else None
    paths = _paths(spec)
    names = [f"{split}/{part}" for split in SPLITS for part in paths]
    with opened(path, entry.bytes, sha256, ATTRIBUTES, names) as file:
        check_attributes(path, file.attributes, entry.silo, spec.format_version, spec.classes)
        found = {split: dict(zip(paths, sets, strict=True)) for split, sets in splits_of(file, paths)}
        if missing := sorted(set(entry.examples) - set(found)):
            lacks = (
                f"{missing[0]}/{paths[0]} and {missing[0]}/{next(path for path in paths if path[0] == 'y')}"
            )
            raise ShardError(f"{path}: has no {lacks}; partition again or restore it")
        for split, sets in found.items():
            check_sets(path, split, sets, entry, spec)
        return Shard(path, {split: split_of(file, split, spec) for split in found}, file.stamp)


def _paths(spec: FederationSpec) -> list[str]:
    """Return the paths in a split of all arrays and of the offsets of ragged ones."""
    arrays = arrays_of(spec.features, spec.targets)
    ragged = [path for path, one in arrays.items() if one is not None and one.ragged]
    return [*arrays, *(f"{path}{OFFSETS}" for path in ragged)]


class Holds(Protocol):
    """An object with arrays by name, such as a file."""

    path: Path

    def array(self, name: str) -> np.ndarray:
        """Return an array."""


def split_of(file: Holds, split: str, spec: FederationSpec) -> Split:
    """Map a split and check its targets."""
    x: dict[str, Column] = {
        path: _column(file, split, path, one) for path, one in by_path("x", spec.features).items()
    }
    y: dict[str, Column] = {}
    for path, (classes, targets) in aims_by_path(spec.classes, spec.targets).items():
        y[path] = _column(file, split, path, targets)
        check_labels(place(f"{file.path}: {split}", path), y[path], classes, targets)
        if targets is not None and targets.dtype == "bool":
            y[path] = y[path].view(np.bool_)
    return Split(_by_name(x), _by_name(y), spec.y_dtype)


def _column(file: Holds, split: str, path: str, one: Features | Targets | None) -> Column:
    """Map an array of a split."""
    array = file.array(f"{split}/{path}")
    if one is None or not one.ragged:
        return array
    more = {"fill": one.padding} if isinstance(one, Targets) else {"fill": one.fill, "mask": one.mask}
    offsets = file.array(f"{split}/{path}{OFFSETS}")
    return ragged_of(f"{file.path}: {split}/{path}", array, offsets, one.shape[0], **more)


def _by_name(arrays: dict[str, Column]) -> Array:
    """Return arrays by their names instead of paths; a single array without a name as it is."""
    (first, *_) = arrays
    if "/" not in first:
        return arrays[first]
    return {path.partition("/")[2]: array for path, array in arrays.items()}


def splits_of(file: Opened, parts: Iterable[str]) -> Iterator[tuple[str, list[StoredArray]]]:
    """Yield the splits of a file, each with the data sets of these names; raise ShardError if a split lacks
    one."""
    for split in SPLITS:
        names = [f"{split}/{part}" for part in parts]
        if absent := [name for name in names if name not in file.sets]:
            if len(absent) < len(names):
                raise ShardError(
                    f"{file.path}: not a readable HDF5 shard (no {absent[0]}); partition again or restore it"
                )
            continue
        yield split, [file.sets[name] for name in names]


def stored_dtype(of: Features | Targets | None) -> np.dtype[Any]:
    """Return the dtype of an array in a shard."""
    return of.stored if isinstance(of, Targets) else np.dtype("int64" if of is None else of.dtype)


def new_shard(
    path: Path,
    labels: Mapping[str, tuple[int, ...]],
    *,
    silo: int | None,
    name: str,
    features: Inputs,
    classes: int | None,
    targets: Aims | None = None,
    filters: Mapping[str, Any] | None = None,
    rows: Mapping[str, int] | None = None,
) -> WrittenFile:
    """Make a shard file and return it open, with room for targets of these shapes [n, ...] and for n inputs.
    For named targets, n is enough. For ragged arrays, `rows` gives the number of rows by SPLIT/PATH.

    Data sets are contiguous at multiples of 64 bytes, or, with h5py's `filters`, in chunks of half a MiB.
    """
    from mpifl.data.hdf5 import WrittenFile, make_room

    file = WrittenFile(path)
    version, number = version_of(features, targets), -1 if classes is None else classes
    file.attrs.update(format=FORMAT, format_version=version, name=name, classes=number)
    file.attrs["silo"] = -1 if silo is None else silo
    for split, (n, *label) in labels.items():
        for part, one in arrays_of(features, targets).items():
            where, dtype = f"{split}/{part}", stored_dtype(one)
            if one is not None and one.ragged:
                make_room(file, where, ((rows or {})[where], *one.shape[1:]), dtype, filters)
                make_room(file, f"{where}{OFFSETS}", (n + 1,), np.dtype("int64"), filters)
            else:
                make_room(file, where, (n, *(label if one is None else one.shape)), dtype, filters)
    return file
