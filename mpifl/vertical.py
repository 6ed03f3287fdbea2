"""Vertical shards: every silo has some columns of the same rows, and one of them has the labels.

A file holds `SPLIT/x` [n, columns] and `SPLIT/id` [n], the rows' numbers, the same in every silo's file and in the same
order; that of the labels' holder also `SPLIT/y`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from mpifl.errors import ShardError
from mpifl.files import sha256_of, write_aside
from mpifl.hdf5 import Reader, make_room, new_file, reader
from mpifl.shards import FORMAT, FORMAT_VERSION, SPLITS, Features, Record, check_arrays


class VerticalEntry(Record):
    """One silo's shard: its features, and which columns of a flattened example they are; `labels` at their holder."""

    silo: NonNegativeInt
    name: str
    file: str
    features: Features
    columns: list[NonNegativeInt]
    examples: dict[str, NonNegativeInt]
    labels: list[NonNegativeInt] | None = None
    bytes: PositiveInt
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class VerticalSpec(Record):
    """`federation.json` of a vertical folder; `features` is what one whole example is."""

    format: Literal["mpifl-shards"] = "mpifl-shards"
    format_version: int = FORMAT_VERSION
    layout: Literal["vertical"] = "vertical"
    name: str
    features: Features
    classes: PositiveInt
    seed: int
    scheme: dict[str, Any]
    source: dict[str, Any]
    silos: list[VerticalEntry] = Field(min_length=1)
    class_names: list[str] | None = None
    feature_names: list[str] | None = None

    def write(self, folder: Path) -> None:
        """Write `federation.json` into `folder`, aside and renamed, as the last act of making it."""
        write_aside(folder / "federation.json", self.model_dump_json(indent=1).encode() + b"\n")


@dataclass(frozen=True)
class VerticalSplit:
    """One split of a vertical shard: x [n, columns], id [n] int64, and y [n, ...] at the labels' holder; mapped."""

    x: np.ndarray
    id: np.ndarray
    y: np.ndarray | None


def is_vertical(folder: Path) -> bool:
    """Tell whether a folder says that it is vertical; what is wrong with it otherwise, others tell."""
    try:
        return bool(json.loads((Path(folder) / "federation.json").read_bytes()).get("layout") == "vertical")
    except (OSError, ValueError, AttributeError):
        return False


def read_vertical(folder: Path) -> VerticalSpec:
    """Read the `federation.json` of a vertical folder; raise ShardError with what is wrong."""
    path = Path(folder) / "federation.json"
    try:
        return VerticalSpec.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ShardError(f"{path}: cannot be read ({error.strerror}); restore it or partition again") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ShardError(f"{path}: {where}: {first['msg']}; write it with data_prep, not by hand") from None


def new_vertical(
    path: Path,
    examples: Mapping[str, int],
    labels: tuple[int, ...] | None,
    *,
    silo: int,
    name: str,
    features: Features,
    classes: int,
    filters: Mapping[str, Any] | None = None,
) -> h5py.File:
    """Make a vertical shard and return it open, with room for every split; `labels` is the shape of one row's."""
    file = new_file(path)
    told = {"format": FORMAT, "format_version": FORMAT_VERSION, "layout": "vertical"}
    file.attrs.update(**told, name=name, classes=classes, silo=silo)
    for split, n in examples.items():
        make_room(file, f"{split}/x", (n, *features.shape), np.dtype(features.dtype), filters)
        make_room(file, f"{split}/id", (n,), np.dtype("int64"), filters)
        if labels is not None:
            make_room(file, f"{split}/y", (n, *labels), np.dtype("int64"), filters)
    return file


def open_vertical(folder: Path, entry: VerticalEntry, classes: int) -> dict[str, VerticalSplit]:
    """Open a vertical shard and hold it against its entry.

    Raises:
        ShardError: it is missing, altered, of another silo, shape or dtype, or has labels where it should have none.
    """
    path = Path(folder) / entry.file
    if not path.is_file():
        raise ShardError(f"{path}: is missing; federation.json names it")
    if path.stat().st_size != entry.bytes or sha256_of(path) != entry.sha256:
        raise ShardError(f"{path}: altered, it is not what federation.json says; partition again or restore it")
    try:
        with h5py.File(path, "r", locking=False) as file:
            if file.attrs.get("layout") != "vertical" or int(file.attrs.get("silo", -1)) != entry.silo:
                raise ShardError(f"{path}: not the vertical shard of silo {entry.silo}; restore the right file")
            read = reader(path)
            splits = {name: _split(read, file[name]) for name in SPLITS if name in file}
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        if isinstance(error, ShardError):
            raise
        raise ShardError(f"{path}: not a readable HDF5 shard ({error}); partition again or restore it") from None
    for name, split in splits.items():
        _check(f"{path}: {name}", split, entry, classes)
    if {name: len(split.id) for name, split in splits.items()} != entry.examples:
        raise ShardError(f"{path}: has other examples than federation.json says; partition again or restore it")
    return splits


def _split(read: Reader, group: h5py.Group) -> VerticalSplit:
    return VerticalSplit(read(group["x"]), read(group["id"]), read(group["y"]) if "y" in group else None)


def _check(where: str, split: VerticalSplit, entry: VerticalEntry, classes: int) -> None:
    holder = entry.labels is not None
    if (split.y is not None) != holder:
        found = (
            "no labels, and federation.json says it has" if holder else "labels, and federation.json says it has none"
        )
        raise ShardError(f"{where}: has {found}; partition again or restore it")
    if len(split.id) != len(split.x):
        raise ShardError(f"{where}: {len(split.x)} rows and {len(split.id)} ids; partition again or restore it")
    labels = np.zeros(len(split.x), np.int64) if split.y is None else split.y
    check_arrays(where, split.x, labels, entry.features, classes)
