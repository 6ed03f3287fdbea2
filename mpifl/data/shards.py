"""The shard format: one HDF5 file a silo, and the `federation.json` that describes the folder.

A shard holds, for each of its splits (`train`, and where wanted `valid` and `test`), the data sets `SPLIT/x`
and `SPLIT/y`. They are contiguous, and uncompressed unless asked, so that a reader maps them into memory
without a copy. HDF5 does not notice a flipped byte in contiguous data; the sha256 of the whole file in
`federation.json` does.

This file needs no torch: `data_prep` is built on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mpifl.common import ShardError, sha256_of
from mpifl.data.features import FEATURE_DTYPES as FEATURE_DTYPES, Features as Features
from mpifl.data.federation import (
    VERSIONS,
    FederationSpec as FederationSpec,
    ShardEntry as ShardEntry,
    other_version,
    read_federation as read_federation,
    read_spec as read_spec,
    version_of,
)
from mpifl.data.hdf5_reading import Opened, Stored, opened
from mpifl.data.targets import Targets, check_arrays, check_counts, check_forms, check_labels, label_counts

if TYPE_CHECKING:
    import h5py

FORMAT = "mpifl-shard"
SPLITS = ("train", "valid", "test", "public")
ATTRIBUTES = ("format", "format_version", "layout", "silo", "classes")

Arrays = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""The splits of a shard by name, each as (x, y): x of shape [n, *features], y of shape [n, ...]."""


@dataclass(frozen=True)
class Split:
    """One split of a shard as stored and mapped, not copied: x of shape [n, *features], y [n, ...]."""

    x: np.ndarray
    y: np.ndarray
    y_dtype: Literal["int64", "float32"] = "int64"
    """What a model receives targets as."""

    def __len__(self) -> int:
        return len(self.y)


class Shard:
    """One opened and verified shard; its splits are mapped into memory when they are first asked for."""

    def __init__(self, path: Path, splits: dict[str, Split]) -> None:
        self.path = path
        self.splits = splits

    def __contains__(self, split: str) -> bool:
        return split in self.splits

    def __getitem__(self, split: str) -> Split:
        return self.splits[split]


def open_shard(folder: Path, entry: ShardEntry, spec: FederationSpec, *, checksum: bool = True) -> Shard:
    """Open a shard of a folder and hold it against its entry.

    Args:
        folder: The shard folder.
        entry: The shard's entry in `spec`.
        spec: The folder's `federation.json`.
        checksum: Read the whole file once and compare its sha256.

    Raises:
        ShardError: it is missing, cut short, altered, of another format, shape or dtype, or has labels out of
            range or values that are not finite.
    """
    path, sha256 = Path(folder) / entry.file, entry.sha256 if checksum else None
    with opened(
        path, entry.bytes, sha256, ATTRIBUTES, [f"{split}/{part}" for split in SPLITS for part in "xy"]
    ) as file:
        _check_attributes(path, file.attributes, entry, spec)
        found = dict(splits_of(file, "xy"))
        if missing := sorted(set(entry.examples) - set(found)):
            raise ShardError(
                f"{path}: has no {missing[0]}/x and {missing[0]}/y; partition again or restore it"
            )
        for split, (x, y) in found.items():
            _check_forms(path, split, x, y, entry, spec)
        return Shard(path, {split: _split(file, split, spec) for split in found})


def _split(file: Opened, split: str, spec: FederationSpec) -> Split:
    """Map a split and look through its targets."""
    x, y = file.array(f"{split}/x"), file.array(f"{split}/y")
    check_labels(f"{file.path}: {split}", y, spec.classes, spec.targets)
    if spec.targets is not None and spec.targets.dtype == "bool":
        y = y.view(np.bool_)
    return Split(x, y, spec.y_dtype)


def splits_of(file: Opened, parts: Iterable[str]) -> Iterator[tuple[str, list[Stored]]]:
    """Yield the splits that a file has, each with its data sets of these names;
    raise ShardError if one is missing."""
    for split in SPLITS:
        names = [f"{split}/{part}" for part in parts]
        if absent := [name for name in names if name not in file.sets]:
            if len(absent) < len(names):
                raise ShardError(
                    f"{file.path}: not a readable HDF5 shard (no {absent[0]}); partition again or restore it"
                )
            continue
        yield split, [file.sets[name] for name in names]


def write_shard(
    path: Path,
    arrays: Arrays,
    *,
    silo: int | None,
    name: str,
    features: Features,
    classes: int | None,
    targets: Targets | None = None,
) -> ShardEntry:
    """Write one shard aside, rename it into place and return its entry;
    raise ShardError if the arrays do not fit."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    shapes = {split: np.shape(y) for split, (_, y) in arrays.items()}
    common: dict[str, Any] = {"features": features, "classes": classes, "targets": targets}
    try:
        with new_shard(aside, shapes, silo=silo, name=name, **common) as file:
            for split, (x, y) in arrays.items():
                check_arrays(f"{path}: {split}", x, y, **common)
                file[f"{split}/x"][...], file[f"{split}/y"][...] = x, np.asarray(y, stored_dtype(targets))
        digest, size = sha256_of(aside), aside.stat().st_size
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    counted = np.asarray(arrays["train" if "train" in arrays else next(iter(arrays))][1])
    return ShardEntry(
        silo=silo,
        name=name,
        file=path.name,
        examples={split: shape[0] for split, shape in shapes.items()},
        labels=label_counts(counted, classes, targets),
        bytes=size,
        sha256=digest,
    )


def stored_dtype(targets: Targets | None) -> np.dtype[Any]:
    """Return the dtype of `SPLIT/y` in a shard."""
    return np.dtype("int64") if targets is None else targets.stored


def new_shard(
    path: Path,
    labels: Mapping[str, tuple[int, ...]],
    *,
    silo: int | None,
    name: str,
    features: Features,
    classes: int | None,
    targets: Targets | None = None,
    filters: Mapping[str, Any] | None = None,
) -> h5py.File:
    """Make a shard file and return it open, with room for targets of these shapes [n, ...] and as many
    features.

    Data sets are contiguous, at multiples of 64 bytes; or, with h5py's `filters`, in chunks of half a MiB.
    """
    from mpifl.data.hdf5 import make_room, new_file  # it brings h5py, which who only reads does without

    file = new_file(path)
    version, number = version_of(targets), -1 if classes is None else classes
    file.attrs.update(format=FORMAT, format_version=version, name=name, classes=number)
    file.attrs["silo"] = -1 if silo is None else silo
    for split, (n, *label) in labels.items():
        make_room(file, f"{split}/x", (n, *features.shape), np.dtype(features.dtype), filters)
        make_room(file, f"{split}/y", (n, *label), stored_dtype(targets), filters)
    return file


def _check_attributes(path: Path, found: Mapping[str, Any], entry: ShardEntry, spec: FederationSpec) -> None:
    if found.get("format") != FORMAT:
        raise ShardError(f"{path}: an HDF5 file, but not a shard; write it with data_prep")
    if (version := found.get("format_version")) not in VERSIONS:
        raise ShardError(f"{path}: {other_version(version)}")
    if version != spec.format_version:
        said = f"format version {version}, federation.json has {spec.format_version}"
        raise ShardError(f"{path}: {said}; partition again or restore it")
    silo = -1 if entry.silo is None else entry.silo
    if found.get("silo") != silo:
        raise ShardError(
            f"{path}: the shard of silo {found.get('silo')}, "
            f"federation.json says {silo}; restore the right file"
        )
    if (classes := found.get("classes")) != (-1 if spec.classes is None else spec.classes):
        told = [("no" if number in (None, -1) else number) for number in (classes, spec.classes)]
        raise ShardError(f"{path}: has {told[0]} classes, federation.json {told[1]}; partition again")


def _check_forms(
    path: Path, split: str, x: Stored, y: Stored, entry: ShardEntry, spec: FederationSpec
) -> None:
    """Hold what a file says of its data against what `federation.json` declares,
    before any of them is read."""
    where = f"{path}: {split}"
    if len(x) != len(y) or len(x) != entry.examples.get(split):
        found = f"{len(x)} features and {len(y)} labels"
        raise ShardError(
            f"{where}: {found}, federation.json says {entry.examples.get(split)}; restore the right file"
        )
    if split == "train" and len(x) == 0:
        raise ShardError(f"{where}: an empty silo; partition with --min-examples 1 or more")
    check_forms(where, x, y, spec.features, spec.classes, spec.targets)
    if spec.classes is not None:
        ignored = spec.targets is not None and spec.targets.ignore is not None
        check_counts(where, y, entry.examples, entry.labels, most=ignored)
