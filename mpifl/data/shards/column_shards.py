"""Vertical shards: writing, checking, and opening without a copy.

A file holds `SPLIT/x` [n, ...] and `SPLIT/id` [n], the rows' numbers. These are the same in every silo's
file, in the same order. The file of the targets' holder also has `SPLIT/y`. Each file carries the tag of the
alignment that made this order: rows of two alignments may have the same numbers but belong to different
people.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from mpifl.common import ShardError, sha256_of
from mpifl.data import (
    Aims,
    Array,
    Features,
    Targets,
    aims_by_path,
    check_arrays,
    check_counts,
    check_features,
    check_labels,
    check_picked,
    check_target_form,
    label_counts,
    place,
)
from mpifl.data.hdf5 import Opened, opened
from mpifl.data.shards.federation_spec import Seen, version_of
from mpifl.data.shards.records import by_path
from mpifl.data.shards.shard_checks import FORMAT, check_attributes
from mpifl.data.shards.shards import ATTRIBUTES, SPLITS, splits_of, stored_dtype
from mpifl.data.shards.vertical_spec import Alignment, VerticalEntry, VerticalSpec

if TYPE_CHECKING:
    from mpifl.data.hdf5 import WrittenFile


_TAG: TypeAdapter[str] = TypeAdapter(Alignment)


@dataclass(frozen=True)
class VerticalSplit:
    """One split of a vertical shard: x [n, ...], id [n] int64, and y [n, ...] at the targets' holder; mapped.

    If targets have names, y holds arrays by name. So does `y_dtype`, the dtypes of targets for a model.
    """

    x: np.ndarray
    id: np.ndarray
    y: Array | None = None
    y_dtype: Seen | dict[str, Seen] = "int64"

    def __len__(self) -> int:
        return len(self.id)

    @property
    def arrays(self) -> dict[str, Any]:
        """Return all arrays by their paths in the split: `x`, `id`, and `y` or `y/NAME` if there are
        targets."""
        return {"x": self.x, "id": self.id, **({} if self.y is None else by_path("y", self.y))}


def new_vertical(
    path: Path,
    examples: Mapping[str, int],
    labels: tuple[int, ...] | None,
    *,
    silo: int,
    name: str,
    features: Features,
    alignment: str,
    classes: int | None,
    targets: Aims | None = None,
    filters: Mapping[str, Any] | None = None,
) -> WrittenFile:
    """Make a vertical shard and return it open, with room for every split.

    Args:
        examples: The number of rows by split.
        labels: The shape of one row's class numbers at the targets' holder, or () if `targets` describes
            them; None at other silos.
        silo: The silo's number.
        name: The silo's name.
        features: The format of the silo's part of one example.
        alignment: The tag of the alignment, 32 hexadecimal digits.
        classes: The number of classes; None if targets are values.
        targets: The format of one row's target; None for an int64 class number.
        filters: h5py's filters for compression; without them data sets are contiguous.
    """
    from mpifl.data.hdf5 import WrittenFile, make_room

    file = WrittenFile(path)
    file.attrs.update(format=FORMAT, format_version=version_of(features, targets), layout="vertical")
    file.attrs.update(name=name, classes=-1 if classes is None else classes, silo=silo, alignment=alignment)
    for split, n in examples.items():
        make_room(file, f"{split}/x", (n, *features.shape), np.dtype(features.dtype), filters)
        make_room(file, f"{split}/id", (n,), np.dtype("int64"), filters)
        for part, one in by_path("y", targets).items() if labels is not None else ():
            shape = labels if one is None else one.shape
            make_room(file, f"{split}/{part}", (n, *(shape or ())), stored_dtype(one), filters)
    return file


def write_vertical(
    path: Path,
    splits: Mapping[str, VerticalSplit],
    columns: list[int],
    *,
    classes: int | None,
    targets: Aims | None = None,
    features: Features,
    **about: Any,
) -> VerticalEntry:
    """Write a vertical shard under a temporary name, rename it, and return its entry.

    Args:
        splits: Its splits; `train` must be among them.
        columns: The numbers of its features' columns in a flattened example.
        classes: The number of classes; None if targets are values.
        targets: The format of one row's target; None for an int64 class number.
        features: The format of the silo's part of one example.
        about: `silo`, `name` and `alignment`, as for `new_vertical`.

    Raises:
        ShardError: the arrays do not fit.
    """
    for split, held in splits.items():
        check_features(f"{path}: {split}", held.x, features)
        if held.y is not None:
            check_arrays(f"{path}: {split}", held.x, held.y, features, classes, targets)
    aside, y = path.with_name(f".{path.name}.{os.getpid()}.partial"), splits["train"].y
    label = y.shape[1:] if isinstance(y, np.ndarray) else None if y is None else ()
    about |= {"features": features, "examples": {split: len(held) for split, held in splits.items()}}
    try:
        with new_vertical(path=aside, labels=label, classes=classes, targets=targets, **about) as file:
            for split, held in splits.items():
                for part, array in held.arrays.items():
                    room = file[f"{split}/{part}"]
                    room[...] = np.asarray(array, room.dtype)
        digest, size = sha256_of(aside), aside.stat().st_size
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    labels = None if y is None else label_counts(None if isinstance(y, dict) else y, classes, targets)
    about |= {"file": path.name, "bytes": size, "sha256": digest}
    return VerticalEntry(**about, columns=columns, labels=labels)


def open_vertical(
    folder: Path, entry: VerticalEntry, spec: VerticalSpec, *, checksum: bool = True
) -> dict[str, VerticalSplit]:
    """Open a vertical shard of a folder and check it against its entry.

    Args:
        folder: The shard folder.
        entry: The shard's entry in `spec`.
        spec: The folder's `federation.json`.
        checksum: Read the whole file once and compare its sha256.

    Raises:
        ShardError: it is missing, altered, or of another silo, alignment, shape or dtype. Or it has targets
            but should have none, or targets that are out of range or not finite.
    """
    path, aims = Path(folder) / entry.file, aims_by_path(spec.classes, spec.targets)
    names = [f"{split}/{part}" for split in SPLITS for part in ("x", "id", *aims)]
    attributes, sha256 = [*ATTRIBUTES, "alignment"], entry.sha256 if checksum else None
    with opened(path, entry.bytes, sha256, attributes, names) as file:
        _check_attributes(path, file.attributes, entry, spec)
        parts = ["x", "id"] if entry.labels is None else ["x", "id", *aims]
        found = dict(splits_of(file, parts))
        if {split: len(sets[0]) for split, sets in found.items()} != entry.examples:
            raise ShardError(
                f"{path}: has other examples than federation.json says; partition again or restore it"
            )
        for split in found:
            _check_sets(file, split, entry, spec)
        return {split: _split(file, split, parts, spec) for split in found}


def alignment_of(path: Path) -> str | None:
    """Return the alignment's tag in a vertical shard, without other checks; None if none can be read."""
    try:
        with opened(path, path.stat().st_size, None, ["alignment"], []) as file:
            return _TAG.validate_python(file.attributes.get("alignment"))
    except (OSError, ShardError, ValidationError):
        return None


def _check_attributes(path: Path, found: Mapping[str, Any], entry: VerticalEntry, spec: VerticalSpec) -> None:
    """Refuse a file of another silo, layout or alignment."""
    check_attributes(path, found, entry.silo, spec.format_version, spec.classes)
    if found.get("layout") != "vertical":
        raise ShardError(f"{path}: not the vertical shard of silo {entry.silo}; restore the right file")
    if (own := found.get("alignment")) is None:
        raise ShardError(f"{path}: has no tag of its alignment; partition or align again")
    if own != entry.alignment:
        said = f"of the alignment {own!r:.40}, federation.json says '{entry.alignment}'"
        raise ShardError(f"{path}: {said}; restore the right file, or align again")


def _check_sets(file: Opened, split: str, entry: VerticalEntry, spec: VerticalSpec) -> None:
    """Check a split's data sets against the file's entry, before any data are read."""
    where, x, id = f"{file.path}: {split}", file.sets[f"{split}/x"], file.sets[f"{split}/id"]
    aims = aims_by_path(spec.classes, spec.targets)
    there = {part: file.sets[f"{split}/{part}"] for part in aims if f"{split}/{part}" in file.sets}
    if there and entry.labels is None:
        raise ShardError(
            f"{where}: has labels, and federation.json says it has none; partition again or restore it"
        )
    if id.shape != (len(x),) or id.dtype.name != "int64":
        said = f"{len(x)} rows and {id.dtype.name} ids of shape {list(id.shape)}"
        raise ShardError(f"{where}: {said}; partition again or restore it")
    check_features(where, x, entry.features)
    for part, y in there.items():
        if len(y) != len(x):
            raise ShardError(f"{where}: {len(x)} rows and {len(y)} targets; partition again or restore it")
        check_target_form(place(where, part), y, *aims[part])
        check_picked(place(where, part), y, aims[part][1])
    if there and entry.labels is not None and spec.classes is not None:
        ignored = isinstance(spec.targets, Targets) and spec.targets.ignore is not None
        check_counts(where, there["y"], entry.examples, entry.labels, most=ignored)


def _split(file: Opened, split: str, parts: list[str], spec: VerticalSpec) -> VerticalSplit:
    """Map a split and check its targets."""
    arrays, y = {part: file.array(f"{split}/{part}") for part in parts}, {}
    for part, (classes, targets) in aims_by_path(spec.classes, spec.targets).items():
        if part in arrays:
            check_labels(place(f"{file.path}: {split}", part), arrays[part], classes, targets)
            bools = targets is not None and targets.dtype == "bool"
            y[part.removeprefix("y/")] = arrays[part].view(np.bool_) if bools else arrays[part]
    held: Any = y.get("y", y or None)
    return VerticalSplit(arrays["x"], arrays["id"], held, spec.y_dtype)
