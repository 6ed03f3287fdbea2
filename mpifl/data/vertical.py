"""Vertical shards: every silo has some columns of the same rows, and one of them has the labels.

A file holds `SPLIT/x` [n, columns] and `SPLIT/id` [n], the rows' numbers, the same in every silo's file and
in the same order; that of the labels' holder also `SPLIT/y`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from mpifl.common import ShardError, write_atomic
from mpifl.data.features import Classes, Features
from mpifl.data.federation import FORMAT_VERSION, check_entries
from mpifl.data.hdf5_reading import Opened, opened
from mpifl.data.records import Counts, Examples, FileName, Record, Text, Texts, as_record, read_parts
from mpifl.data.shards import ATTRIBUTES, FORMAT, SPLITS, splits_of
from mpifl.data.targets import check_counts, check_forms, check_labels

if TYPE_CHECKING:
    import h5py


class VerticalEntry(Record):
    """One silo's shard: its features, and which columns of a flattened example they are;
    `labels` at their holder."""

    silo: NonNegativeInt
    name: Text
    file: FileName
    features: Features
    columns: Counts
    examples: Examples
    labels: Counts | None = None
    bytes: PositiveInt
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class VerticalSpec(Record):
    """`federation.json` of a vertical folder; `features` is what one whole example is."""

    format: Literal["mpifl-shards"] = "mpifl-shards"
    format_version: int = FORMAT_VERSION
    layout: Literal["vertical"] = "vertical"
    name: Text
    features: Features
    classes: Classes
    seed: int
    scheme: dict[str, Any]
    source: dict[str, Any]
    silos: Annotated[list[VerticalEntry], Field(min_length=1, fail_fast=True)]
    class_names: Texts | None = None
    feature_names: Texts | None = None

    def write(self, folder: Path) -> None:
        """Write `federation.json` into `folder`, aside and renamed, as the last act of making it."""
        write_atomic(folder / "federation.json", self.model_dump_json(indent=1).encode() + b"\n")


@dataclass(frozen=True)
class VerticalSplit:
    """One split of a vertical shard: x [n, columns], id [n] int64,
    and y [n, ...] at the labels' holder; mapped."""

    x: np.ndarray
    id: np.ndarray
    y: np.ndarray | None = None


def is_vertical(folder: Path) -> bool:
    """Tell whether a folder says that it is vertical; what is wrong with it otherwise, others tell."""
    try:
        return bool(read_parts(Path(folder) / "federation.json").get("layout") == "vertical")
    except (OSError, ShardError, AttributeError):
        return False


def read_vertical(folder: Path) -> VerticalSpec:
    """Read the `federation.json` of a vertical folder; raise ShardError with what is wrong."""
    path = Path(folder) / "federation.json"
    try:
        spec = as_record(path, VerticalSpec, read_parts(path))
    except OSError as error:
        raise ShardError(
            f"{path}: cannot be read ({error.strerror}); restore it or partition again"
        ) from None
    labels = [entry.labels for entry in spec.silos if entry.labels is not None]
    check_entries(path, [entry.file for entry in spec.silos], labels, spec.classes)
    return spec


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
    """Make a vertical shard and return it open, with room for every split;
    `labels` is the shape of one row's."""
    from mpifl.data.hdf5 import make_room, new_file  # it brings h5py, which who only reads does without

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
        ShardError: it is missing, altered, of another silo, shape or dtype, or has labels where it should
            have none.
    """
    path, parts = Path(folder) / entry.file, ["x", "id"] + ["y"] * (entry.labels is not None)
    names = [f"{split}/{part}" for split in SPLITS for part in ("x", "id", "y")]
    with opened(path, entry.bytes, entry.sha256, ATTRIBUTES, names) as file:
        if file.attributes.get("layout") != "vertical" or file.attributes.get("silo") != entry.silo:
            raise ShardError(f"{path}: not the vertical shard of silo {entry.silo}; restore the right file")
        found = dict(splits_of(file, parts))
        if {split: len(sets[0]) for split, sets in found.items()} != entry.examples:
            raise ShardError(
                f"{path}: has other examples than federation.json says; partition again or restore it"
            )
        for split in found:
            _check_forms(file, split, entry, classes)
        splits = {
            split: VerticalSplit(*map(file.array, [f"{split}/{part}" for part in parts])) for split in found
        }
    for name, held in splits.items():
        if held.y is not None:
            check_labels(f"{path}: {name}", held.y, classes)
    return splits


def _check_forms(file: Opened, split: str, entry: VerticalEntry, classes: int) -> None:
    where, x, id = f"{file.path}: {split}", file.sets[f"{split}/x"], file.sets[f"{split}/id"]
    y = file.sets.get(f"{split}/y")
    if y is not None and entry.labels is None:
        raise ShardError(
            f"{where}: has labels, and federation.json says it has none; partition again or restore it"
        )
    if id.shape != (len(x),) or id.dtype.name != "int64":
        said = f"{len(x)} rows and {id.dtype.name} ids of shape {list(id.shape)}"
        raise ShardError(f"{where}: {said}; partition again or restore it")
    check_forms(where, {"x": x}, {"y": id if y is None else y}, entry.features, classes)
    if y is not None and entry.labels is not None:
        check_counts(where, y, entry.examples, entry.labels, most=False)
