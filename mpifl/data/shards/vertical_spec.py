"""`federation.json` of a vertical folder: silos have columns of the same rows, and one silo has the
targets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, NonNegativeInt, SerializerFunctionWrapHandler, model_serializer, model_validator

from mpifl.common import ShardError, write_atomic
from mpifl.data import Aims, Classes, Features, check_kind, told
from mpifl.data.shards.federation_spec import (
    FORMAT_VERSION,
    VERSIONS,
    FederationSpec,
    Seen,
    ShardEntry,
    check_entries,
    check_silos,
    check_version,
    meant,
    other_version,
    read_federation,
    seen_as,
)
from mpifl.data.shards.records import (
    Counts,
    Examples,
    FileName,
    Record,
    Text,
    Texts,
    as_record,
    by_path,
    known,
    read_parts,
)

Alignment = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
"""The tag of an alignment: shards with the same tag have the same rows in the same order."""
_MAKE = "make the shards with 'python -m data_prep partition --scheme vertical', or align the parties' tables"


class VerticalEntry(Record):
    """One silo's shard: its features, and their columns in a flattened example. Only the targets' holder has
    `labels`."""

    silo: NonNegativeInt
    name: Text
    file: FileName
    features: Features
    columns: Counts
    alignment: Alignment
    examples: Examples
    labels: Counts | None = None
    """Label histogram of the training split; empty if targets have no classes."""
    bytes: Annotated[int, Field(gt=0, lt=1 << 63)]
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    groups: Examples | None = None
    """The number of groups in each split, if the shard has groups."""

    @model_serializer(mode="wrap")
    def _as_before(self, make: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out `groups` for shards without groups, so that their files stay the same to the byte."""
        return known(make(self), "groups")

    @model_validator(mode="after")
    def _columns_are_the_features(self) -> VerticalEntry:
        if self.features.ragged:
            raise ValueError("ragged features; those of vertical shards have one length")
        if math.prod(self.features.shape) != len(self.columns):
            shape = list(self.features.shape)
            raise ValueError(f"{len(self.columns)} columns, and features of shape {shape}")
        return self


class VerticalSpec(Record):
    """`federation.json` of a vertical folder; `features` is the format of a whole example."""

    format: Literal["mpifl-shards"] = "mpifl-shards"
    format_version: int = FORMAT_VERSION
    layout: Literal["vertical"] = "vertical"
    name: Text
    features: Features
    classes: Classes | None
    """The number of classes; None if targets are values."""
    targets: Aims | None = None
    """The format of a target; None is an int64 class number."""
    seed: int
    scheme: dict[str, Any]
    source: dict[str, Any]
    silos: Annotated[list[VerticalEntry], Field(min_length=1, fail_fast=True)]
    class_names: Texts | None = None
    feature_names: Texts | None = None

    @property
    def test(self) -> None:
        """None: there is no test set besides the silos' splits."""

    @property
    def public(self) -> None:
        """None: all rows belong to silos."""

    @property
    def single(self) -> Features:
        """Return the format of an example."""
        return self.features

    @property
    def has_ragged_targets(self) -> bool:
        """Return False: all rows have equally many targets."""
        return False

    @property
    def holder(self) -> int:
        """Return the number of the silo that holds the targets.

        Raises:
            ShardError: no silo does, or several do.
        """
        holders = [entry.silo for entry in self.silos if entry.labels is not None]
        if len(holders) != 1:
            who = f"silos {', '.join(map(str, holders))} hold" if holders else "no silo holds"
            raise ShardError(f"federation.json: {who} the targets, and one must; partition or align again")
        return holders[0]

    @property
    def rows(self) -> dict[str, int]:
        """Return the number of rows of each split, which is the same at all silos."""
        return self.silos[0].examples

    @property
    def y_dtype(self) -> Seen | dict[str, Seen]:
        """Return the dtype of targets for a model: int64 for class numbers, float32 for values."""
        return seen_as(self.classes, self.targets)

    @property
    def aim(self) -> str:
        """The description of the targets in messages."""
        return told(self.classes, self.targets)

    @model_validator(mode="after")
    def _targets_are_of_one_length(self) -> VerticalSpec:
        check_kind(self.classes, self.targets)
        check_version(self.format_version, self.features, self.targets)
        aims = by_path("y", self.targets).values()
        if self.features.ragged or any(one is not None and one.ragged for one in aims):
            raise ValueError("ragged arrays; those of vertical shards have one length")
        columns = math.prod(self.features.shape)
        if odd := next((entry for entry in self.silos if max(entry.columns, default=0) >= columns), None):
            has = f"silo {odd.silo} has column {max(odd.columns)}"
            raise ValueError(f"{has}; an example has the columns 0 to {columns - 1}")
        return self

    @model_serializer(mode="wrap")
    def _as_horizontal(self, make: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out `targets` if it is None, as in horizontal folders."""
        return {key: value for key, value in make(self).items() if key != "targets" or value is not None}

    def write(self, folder: Path) -> None:
        """Write `federation.json` into `folder` atomically, as the last file of the folder."""
        write_atomic(folder / "federation.json", self.model_dump_json(indent=1).encode() + b"\n")


AnyEntry: TypeAlias = ShardEntry | VerticalEntry
"""The entry of one shard, in either layout."""
AnySpec: TypeAlias = FederationSpec | VerticalSpec
"""The description of a folder of either layout: silos with examples, or with columns of the same rows."""


def is_vertical(folder: Path) -> bool:
    """Return whether a folder's `federation.json` says that it is vertical; other faults are reported
    elsewhere."""
    try:
        return bool(read_parts(Path(folder) / "federation.json").get("layout") == "vertical")
    except (OSError, ShardError, AttributeError):
        return False


def read_any(folder: Path) -> AnySpec:
    """Read the `federation.json` of a folder of either layout; raise ShardError if it is wrong."""
    return read_vertical(folder) if is_vertical(folder) else read_federation(folder)


def parse_any(text: str) -> AnySpec:
    """Parse a `federation.json` of either layout that this program wrote."""
    vertical = json.loads(text).get("layout") == "vertical"
    return (VerticalSpec if vertical else FederationSpec).model_validate_json(text)


def read_vertical(folder: Path) -> VerticalSpec:
    """Read the `federation.json` of a vertical folder; raise ShardError if it is wrong."""
    path = Path(folder) / "federation.json"
    try:
        parts = read_parts(path)
    except OSError as error:
        what = (
            "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        )
        raise ShardError(f"{path}: {what}; {meant(path)}{_MAKE}") from None
    _check_kind(path, parts)
    spec = as_record(path, VerticalSpec, parts)
    labels = [entry.labels for entry in spec.silos if entry.labels is not None]
    check_entries(path, [entry.file for entry in spec.silos], labels, spec.classes)
    check_silos(path, [(entry.silo, entry.examples) for entry in spec.silos])
    for entry in spec.silos:
        if entry.examples != spec.rows:
            said = f"silo {entry.silo} has {_rows(entry.examples)}, silo 0 has {_rows(spec.rows)}"
            raise ShardError(f"{path}: {said}; all have the same rows: partition or align again")
    return spec


def _check_kind(path: Path, parts: Any) -> None:
    """Refuse a horizontal folder, another version, or a folder from before alignments had tags."""
    if not isinstance(parts, dict):
        return
    if (version := parts.get("format_version", FORMAT_VERSION)) not in VERSIONS:
        raise ShardError(f"{path}: {other_version(version)}")
    if parts.get("layout", "horizontal") == "horizontal":
        raise ShardError(f"{path}: its silos have examples, not columns; {_MAKE}")
    silos = parts.get("silos")
    for entry in silos if isinstance(silos, list) else ():
        if isinstance(entry, dict) and "alignment" not in entry:
            made = "made before shards carried the tag of their alignment"
            raise ShardError(f"{path}: {made}; partition or align again")


def _rows(examples: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {split}" for split, n in sorted(examples.items()))
