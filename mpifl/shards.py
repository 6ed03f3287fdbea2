"""The shard format: one HDF5 file a silo, and the `federation.json` that describes the folder.

A shard holds, for each of its splits (`train`, and where wanted `valid` and `test`), the data sets `SPLIT/x` and
`SPLIT/y`: contiguous and uncompressed unless asked, so that a reader maps them into memory without a copy. HDF5 does
not notice a flipped byte in contiguous data; the sha256 of the whole file in `federation.json` does.

This file needs no torch: `data_prep` is built on it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from mpifl.errors import ShardError
from mpifl.files import sha256_of, write_aside
from mpifl.hdf5 import Reader, make_room, new_file, reader

FORMAT = "mpifl-shard"
FORMAT_VERSION = 1
SPLITS = ("train", "valid", "test", "public")
_WHOLE_EXAMPLES = "training one model on all features (each silo has some columns of the same rows)"
FEATURE_DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")

Arrays = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""The splits of a shard by name, each as (x, y): x of shape [n, *features], y integer of shape [n, ...]."""


class Record(BaseModel):
    """What stands in a `federation.json`: strict about its keys, and frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Features(Record):
    """What one example is: its shape and stored dtype, and how a model is to see it.

    A model receives float32 `x * scale + offset`; without a scale it receives integers as int64 and floats as float32.
    """

    shape: tuple[PositiveInt, ...]
    dtype: Literal["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
    scale: float | None = None
    offset: float = 0.0


class ShardEntry(Record):
    """One shard as its folder's `federation.json` describes it; `silo` is None for `test.h5` and `public.h5`."""

    silo: NonNegativeInt | None
    name: str
    file: str
    examples: dict[str, NonNegativeInt]
    labels: list[NonNegativeInt]
    """Label histogram of the training split (of the test split for `test.h5`)."""
    bytes: PositiveInt
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class FederationSpec(Record):
    """`federation.json`: what all shards of a folder have in common, and an entry for each."""

    format: Literal["mpifl-shards"] = "mpifl-shards"
    format_version: int = FORMAT_VERSION
    name: str
    features: Features
    classes: PositiveInt
    seed: int
    scheme: dict[str, Any]
    source: dict[str, Any]
    silos: list[ShardEntry]
    test: ShardEntry | None = None
    public: ShardEntry | None = None
    """Examples that belong to no silo and that all may see; their labels are used by nobody."""
    class_names: list[str] | None = None
    feature_names: list[str] | None = None

    def write(self, folder: Path) -> None:
        """Write `federation.json` into `folder`, aside and renamed, as the last act of making it."""
        write_aside(folder / "federation.json", self.model_dump_json(indent=1).encode() + b"\n")


def read_federation(folder: Path) -> FederationSpec:
    """Read the `federation.json` of a shard folder; raise ShardError with what is wrong and what would do."""
    path = Path(folder) / "federation.json"
    spec = read_spec(path)
    for entry in spec.silos:
        if not entry.examples.get("train"):
            raise ShardError(f"{path}: silo {entry.silo} has no training examples; partition with --min-examples 1")
    if [entry.silo for entry in spec.silos] != list(range(len(spec.silos))) or not spec.silos:
        raise ShardError(f"{path}: silos must be numbered 0, 1, 2, ... in order, and at least one; partition again")
    return spec


def read_spec(path: Path) -> FederationSpec:
    """Read a file of the form of `federation.json` with whatever silos it names, or none."""
    try:
        text = path.read_bytes()
    except OSError as error:
        what = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise ShardError(f"{path}: {what}; make the shards with 'python -m data_prep partition'") from None
    try:
        with contextlib.suppress(ValueError, AttributeError):  # told below
            found = json.loads(text)  # first: another version, another layout has other keys
            if (version := found.get("format_version", FORMAT_VERSION)) != FORMAT_VERSION:
                raise ShardError(f"{path}: {_other_version(version)}")
            if (layout := found.get("layout", "horizontal")) != "horizontal":
                raise ShardError(f"{path}: {layout} shards are not for {_WHOLE_EXAMPLES}; take another scheme")
        return FederationSpec.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ShardError(f"{path}: {where}: {first['msg']}; write it with data_prep, not by hand") from None


@dataclass(frozen=True)
class Split:
    """One split of a shard: x of shape [n, *features] as stored, y of shape [n, ...] int64; mapped, not copied."""

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
        ShardError: it is missing, cut short, altered, of another format, shape or dtype, or has labels out of range.
    """
    path = Path(folder) / entry.file
    _check_bytes(path, entry, checksum)
    try:
        with h5py.File(path, "r", locking=False) as file:
            _check_attributes(path, file, entry, spec)
            read = reader(path)
            splits = {name: _open_split(path, file, name, read, entry, spec) for name in SPLITS if name in file}
    except ShardError:
        raise
    except (OSError, KeyError, ValueError, RuntimeError, AttributeError, TypeError) as error:  # h5py's, for odd files
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            what = "this process may open no more files; raise 'ulimit -n', or take more ranks"
            raise ShardError(f"{path}: {what}") from None
        raise ShardError(f"{path}: not a readable HDF5 shard ({error}); partition again or restore it") from None
    if missing := sorted(set(entry.examples) - set(splits)):
        raise ShardError(f"{path}: has no {missing[0]}/x and {missing[0]}/y; partition again or restore it")
    return Shard(path, splits)


def write_shard(
    path: Path, arrays: Arrays, *, silo: int | None, name: str, features: Features, classes: int
) -> ShardEntry:
    """Write one shard aside, rename it into place and return its entry; raise ShardError if the arrays do not fit."""
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
    """Make a shard file and return it open, with room for labels of these shapes [n, ...] and as many features.

    Data sets are contiguous, at multiples of 64 bytes; or, with h5py's `filters`, in chunks of half a MiB.
    """
    file = new_file(path)
    file.attrs.update(format=FORMAT, format_version=FORMAT_VERSION, name=name, classes=classes)
    file.attrs["silo"] = -1 if silo is None else silo
    for split, (n, *label) in labels.items():
        make_room(file, f"{split}/x", (n, *features.shape), np.dtype(features.dtype), filters)
        make_room(file, f"{split}/y", (n, *label), np.dtype("int64"), filters)
    return file


def _check_bytes(path: Path, entry: ShardEntry, checksum: bool) -> None:
    try:
        size = path.stat().st_size
        if size != entry.bytes:
            raise ShardError(f"{path}: {size} bytes, federation.json says {entry.bytes}; partition again or restore it")
        if checksum and sha256_of(path) != entry.sha256:
            found = "altered, its sha256 is not that in federation.json"
            raise ShardError(f"{path}: {found}; partition again or restore it")
    except OSError as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise ShardError(f"{path}: {what}; federation.json names it") from None


def _check_attributes(path: Path, file: h5py.File, entry: ShardEntry, spec: FederationSpec) -> None:
    if file.attrs.get("format") != FORMAT:
        raise ShardError(f"{path}: an HDF5 file, but not a shard; write it with data_prep")
    if (version := int(file.attrs.get("format_version", 0))) != FORMAT_VERSION:
        raise ShardError(f"{path}: {_other_version(version)}")
    silo = -1 if entry.silo is None else entry.silo
    if (found := int(file.attrs.get("silo", -2))) != silo:
        raise ShardError(f"{path}: the shard of silo {found}, federation.json says {silo}; restore the right file")
    if (classes := int(file.attrs.get("classes", 0))) != spec.classes:
        raise ShardError(f"{path}: has {classes} classes, federation.json {spec.classes}; partition again")


def _open_split(path: Path, file: h5py.File, name: str, read: Reader, entry: ShardEntry, spec: FederationSpec) -> Split:
    split = Split(read(file[f"{name}/x"]), read(file[f"{name}/y"]))
    where = f"{path}: {name}"
    if len(split.x) != len(split.y) or len(split) != entry.examples.get(name):
        found = f"{len(split.x)} features and {len(split.y)} labels"
        raise ShardError(f"{where}: {found}, federation.json says {entry.examples.get(name)}; restore the right file")
    if name == "train" and len(split) == 0:
        raise ShardError(f"{where}: an empty silo; partition with --min-examples 1 or more")
    check_arrays(where, split.x, split.y, spec.features, spec.classes)
    return split


def check_arrays(where: str, x: np.ndarray, y: np.ndarray, features: Features, classes: int) -> None:
    """Refuse arrays of another shape or dtype than a federation's, or with labels out of range."""
    if tuple(x.shape[1:]) != features.shape:
        wanted = f"the federation has {list(features.shape)}; partition again"
        raise ShardError(f"{where}: features of shape {list(x.shape[1:])}, {wanted}")
    if x.dtype.name != features.dtype:
        wanted = f"the federation has {features.dtype}; partition again"
        raise ShardError(f"{where}: features of dtype {x.dtype.name}, {wanted}")
    if len(x) != len(y):
        raise ShardError(f"{where}: {len(x)} features and {len(y)} labels; they must be as many")
    if y.dtype.kind not in "iu":
        raise ShardError(f"{where}: labels of dtype {y.dtype.name}; they must be integers from 0 to {classes - 1}")
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise ShardError(f"{where}: labels from {y.min()} to {y.max()}; {classes} classes take 0 to {classes - 1}")


def _other_version(version: int) -> str:
    return f"format version {version}, this program reads {FORMAT_VERSION}; partition again with its data_prep"
