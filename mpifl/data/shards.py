"""The shard format: one HDF5 file a silo, and the `federation.json` that describes the folder.

A shard holds, for each of its splits (`train`, and where wanted `valid` and `test`), the data sets `SPLIT/x`
and `SPLIT/y`. They are contiguous, and uncompressed unless asked, so that a reader maps them into memory
without a copy. HDF5 does not notice a flipped byte in contiguous data; the sha256 of the whole file in
`federation.json` does.

This file needs no torch: `data_prep` is built on it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from mpifl.common import ShardError, sha256_of, write_atomic
from mpifl.data.features import (
    FEATURE_DTYPES as FEATURE_DTYPES,
    Classes,
    Features as Features,
    Form,
    check_arrays as check_arrays,
    check_forms,
    check_labels,
)
from mpifl.data.hdf5_reading import Opened, Stored, opened
from mpifl.data.records import BY_HAND, Counts, Examples, FileName, Record, Text, Texts, as_record, read_parts

if TYPE_CHECKING:
    import h5py

FORMAT = "mpifl-shard"
FORMAT_VERSION = 1
SPLITS = ("train", "valid", "test", "public")
_WHOLE_EXAMPLES = "training one model on all features (each silo has some columns of the same rows)"
ATTRIBUTES = ("format", "format_version", "layout", "silo", "classes")

Arrays = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""The splits of a shard by name, each as (x, y): x of shape [n, *features], y integer of shape [n, ...]."""


class ShardEntry(Record):
    """One shard as its folder's `federation.json` describes it;
    `silo` is None for `test.h5` and `public.h5`."""

    silo: NonNegativeInt | None
    name: Text
    file: FileName
    examples: Examples
    labels: Counts
    """Label histogram of the training split (of the test split for `test.h5`)."""
    bytes: PositiveInt
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class FederationSpec(Record):
    """`federation.json`: what all shards of a folder have in common, and an entry for each."""

    format: Literal["mpifl-shards"] = "mpifl-shards"
    format_version: int = FORMAT_VERSION
    name: Text
    features: Features
    classes: Classes
    seed: int
    scheme: dict[str, Any]
    source: dict[str, Any]
    silos: Annotated[list[ShardEntry], Field(fail_fast=True)]
    test: ShardEntry | None = None
    public: ShardEntry | None = None
    """Examples that belong to no silo and that all may see; their labels are used by nobody."""
    class_names: Texts | None = None
    feature_names: Texts | None = None

    def write(self, folder: Path) -> None:
        """Write `federation.json` into `folder`, aside and renamed, as the last act of making it."""
        write_atomic(folder / "federation.json", self.model_dump_json(indent=1).encode() + b"\n")


def read_federation(folder: Path) -> FederationSpec:
    """Read the `federation.json` of a shard folder; raise ShardError with what is wrong and what would do."""
    path = Path(folder) / "federation.json"
    spec = read_spec(path)
    for entry in spec.silos:
        if not entry.examples.get("train"):
            raise ShardError(
                f"{path}: silo {entry.silo} has no training examples; partition with --min-examples 1"
            )
    if [entry.silo for entry in spec.silos] != list(range(len(spec.silos))) or not spec.silos:
        raise ShardError(
            f"{path}: silos must be numbered 0, 1, 2, ... in order, and at least one; partition again"
        )
    return spec


def read_spec(path: Path) -> FederationSpec:
    """Read a file of the form of `federation.json` with whatever silos it names, or none."""
    try:
        parts = read_parts(path)
    except OSError as error:
        what = (
            "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        )
        raise ShardError(f"{path}: {what}; make the shards with 'python -m data_prep partition'") from None
    if isinstance(parts, dict):  # first: another version, another layout has other keys
        if (version := parts.get("format_version", FORMAT_VERSION)) != FORMAT_VERSION:
            raise ShardError(f"{path}: {_other_version(version)}")
        if parts.get("layout", "horizontal") != "horizontal":
            raise ShardError(f"{path}: vertical shards are not for {_WHOLE_EXAMPLES}; take another scheme")
    spec = as_record(path, FederationSpec, parts)
    entries = [*spec.silos, *filter(None, (spec.test, spec.public))]
    check_entries(path, [entry.file for entry in entries], [entry.labels for entry in entries], spec.classes)
    return spec


def check_entries(path: Path, files: Sequence[str], labels: Sequence[Sequence[int]], classes: int) -> None:
    """Refuse a description with two entries of one file,
    or with other label counts than one for each class."""
    in_order = sorted(files)
    if twice := next((file for file, after in pairwise(in_order) if file == after), None):
        raise ShardError(f"{path}: two entries have the file {twice}; {BY_HAND}")
    if wrong := next((counts for counts in labels if len(counts) != classes), None):
        raise ShardError(f"{path}: labels: {len(wrong)} label counts for {classes} classes; {BY_HAND}")


@dataclass(frozen=True)
class Split:
    """One split of a shard: x of shape `[n, *features]` as stored,
    y of shape [n, ...] int64; mapped, not copied."""

    x: np.ndarray
    y: np.ndarray

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
            range.
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
        shard = Shard(
            path, {split: Split(file.array(f"{split}/x"), file.array(f"{split}/y")) for split in found}
        )
        for split, held in shard.splits.items():
            check_labels(f"{path}: {split}", held.y, spec.classes)
    return shard


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
    path: Path, arrays: Arrays, *, silo: int | None, name: str, features: Features, classes: int
) -> ShardEntry:
    """Write one shard aside, rename it into place and return its entry;
    raise ShardError if the arrays do not fit."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    labels = {split: np.shape(y) for split, (_, y) in arrays.items()}
    try:
        with new_shard(aside, labels, silo=silo, name=name, features=features, classes=classes) as file:
            for split, (x, y) in arrays.items():
                check_arrays(f"{path}: {split}", x, y, features, classes)
                file[f"{split}/x"][...], file[f"{split}/y"][...] = x, y
        digest, size = sha256_of(aside), aside.stat().st_size
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    counted = np.asarray(arrays["train" if "train" in arrays else next(iter(arrays))][1])
    return ShardEntry(
        silo=silo,
        name=name,
        file=path.name,
        examples={split: shape[0] for split, shape in labels.items()},
        labels=np.bincount(counted.reshape(-1), minlength=classes).tolist(),
        bytes=size,
        sha256=digest,
    )


def new_shard(
    path: Path,
    labels: Mapping[str, tuple[int, ...]],
    *,
    silo: int | None,
    name: str,
    features: Features,
    classes: int,
    filters: Mapping[str, Any] | None = None,
) -> h5py.File:
    """Make a shard file and return it open, with room for labels of these shapes [n, ...] and as many
    features.

    Data sets are contiguous, at multiples of 64 bytes; or, with h5py's `filters`, in chunks of half a MiB.
    """
    from mpifl.data.hdf5 import make_room, new_file  # it brings h5py, which who only reads does without

    file = new_file(path)
    file.attrs.update(format=FORMAT, format_version=FORMAT_VERSION, name=name, classes=classes)
    file.attrs["silo"] = -1 if silo is None else silo
    for split, (n, *label) in labels.items():
        make_room(file, f"{split}/x", (n, *features.shape), np.dtype(features.dtype), filters)
        make_room(file, f"{split}/y", (n, *label), np.dtype("int64"), filters)
    return file


def _check_attributes(path: Path, found: Mapping[str, Any], entry: ShardEntry, spec: FederationSpec) -> None:
    if found.get("format") != FORMAT:
        raise ShardError(f"{path}: an HDF5 file, but not a shard; write it with data_prep")
    if (version := found.get("format_version")) != FORMAT_VERSION:
        raise ShardError(f"{path}: {_other_version(version)}")
    silo = -1 if entry.silo is None else entry.silo
    if found.get("silo") != silo:
        raise ShardError(
            f"{path}: the shard of silo {found.get('silo')}, "
            f"federation.json says {silo}; restore the right file"
        )
    if (classes := found.get("classes")) != spec.classes:
        raise ShardError(f"{path}: has {classes} classes, federation.json {spec.classes}; partition again")


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
    check_forms(where, x, y, spec.features, spec.classes)
    check_label_shape(where, y, entry.examples, entry.labels)


def check_label_shape(where: str, y: Form, examples: Mapping[str, int], labels: Sequence[int]) -> None:
    """Refuse labels of another number for each example than the histogram `labels` has been counted from."""
    counted = examples.get("train", next(iter(examples.values()), 0))
    if math.prod(y.shape) * counted != sum(labels) * y.shape[0]:
        said = f"labels of shape {list(y.shape)}, federation.json counts {sum(labels)} of {counted} examples"
        raise ShardError(f"{where}: {said}; partition again or restore it")


def _other_version(version: Any) -> str:
    return (
        f"format version {version!r:.20}, this program reads {FORMAT_VERSION}; "
        "partition again with its data_prep"
    )
