"""The records of `federation.json`, which describes a folder of shards, and their reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, SerializerFunctionWrapHandler, model_serializer, model_validator

from mpifl.common import ShardError, did_you_mean, write_atomic
from mpifl.data import Aims, Classes, Features, Inputs, Targets, check_kind, check_masks, told
from mpifl.data.shards.records import (
    BY_HAND,
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

FORMAT_VERSION = 1
ARRAYS_VERSION = 2
"""The version of folders whose `federation.json` describes targets, or has named arrays."""
RAGGED_VERSION = 3
"""The version of folders with ragged arrays."""
VERSIONS = (FORMAT_VERSION, ARRAYS_VERSION, RAGGED_VERSION)
Seen = Literal["int64", "float32"]
_WHOLE_EXAMPLES = "training one model on all features (each silo has some columns of the same rows)"


class ShardEntry(Record):
    """The entry of one shard in `federation.json`; `silo` is None for `test.h5` and `public.h5`."""

    silo: NonNegativeInt | None
    name: Text
    file: FileName
    examples: Examples
    labels: Counts
    """Label histogram of the training split (the test split for `test.h5`); empty without classes."""
    bytes: Annotated[int, Field(gt=0, lt=1 << 63)]
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    groups: Examples | None = None
    """The number of groups in each split, if the shard has groups."""

    @model_serializer(mode="wrap")
    def _as_before(self, make: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out `groups` for shards without groups, so that their files stay the same to the byte."""
        return known(make(self), "groups")


class FederationSpec(Record):
    """`federation.json`: the facts that all shards of a folder share, and an entry for each shard."""

    format: Literal["mpifl-shards"] = "mpifl-shards"
    format_version: int = FORMAT_VERSION
    name: Text
    features: Inputs
    classes: Classes | None
    """The number of classes; None if targets are values."""
    targets: Aims | None = None
    """The format of a target; None is an int64 class number."""
    seed: int
    scheme: dict[str, Any]
    source: dict[str, Any]
    silos: Annotated[list[ShardEntry], Field(fail_fast=True)]
    test: ShardEntry | None = None
    public: ShardEntry | None = None
    """Examples that belong to no silo and that all may see; their labels are never used."""
    class_names: Texts | None = None
    feature_names: Texts | None = None

    @property
    def layout(self) -> Literal["horizontal"]:
        """Return "horizontal": silos have examples, not columns."""
        return "horizontal"

    @property
    def y_dtype(self) -> Seen | dict[str, Seen]:
        """Return the dtype of targets for a model: int64 for class numbers, float32 for values."""
        return seen_as(self.classes, self.targets)

    @property
    def single(self) -> Features:
        """Return the format of an example whose input is one array.

        Raises:
            ShardError: the input has several arrays.
        """
        if isinstance(self.features, dict):
            named = f"features are named arrays ({', '.join(self.features)})"
            raise ShardError(f"federation.json: {named}, and this takes one array; partition again")
        return self.features

    @property
    def has_ragged_targets(self) -> bool:
        """Return whether examples have unequal numbers of targets, so that outputs of batches have different
        shapes."""
        return any(one is not None and one.ragged for one in by_path("y", self.targets).values())

    @property
    def aim(self) -> str:
        """The description of the targets in messages."""
        return told(self.classes, self.targets)

    @model_validator(mode="after")
    def _targets_have_classes_or_values(self) -> FederationSpec:
        check_kind(self.classes, self.targets)
        check_masks(self.features)
        check_version(self.format_version, self.features, self.targets)
        return self

    @model_serializer(mode="wrap")
    def _as_before(self, make: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out `targets` if it is None, so that files of version 1 stay the same to the byte."""
        return known(make(self), "targets")

    def write(self, folder: Path) -> None:
        """Write `federation.json` into `folder` atomically, as the last file of the folder."""
        write_atomic(folder / "federation.json", self.model_dump_json(indent=1).encode() + b"\n")


def read_federation(folder: Path) -> FederationSpec:
    """Read the `federation.json` of a shard folder; raise ShardError with the fault and what to do."""
    path = Path(folder) / "federation.json"
    spec = read_spec(path)
    check_silos(path, [(entry.silo, entry.examples) for entry in spec.silos])
    return spec


def check_silos(path: Path, silos: Sequence[tuple[int | None, Mapping[str, int]]]) -> None:
    """Refuse silos without training examples, or not numbered in order. Each is given by its number and its
    examples by split."""
    for silo, examples in silos:
        if not examples.get("train"):
            raise ShardError(f"{path}: silo {silo} has no training examples; partition with --min-examples 1")
    if [silo for silo, _ in silos] != list(range(len(silos))) or not silos:
        raise ShardError(
            f"{path}: silos must be numbered 0, 1, 2, ... in order, and at least one; partition again"
        )


def read_spec(path: Path) -> FederationSpec:
    """Read a file in the form of `federation.json`, which may name any silos or none."""
    try:
        parts = read_parts(path)
    except OSError as error:
        what = (
            "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        )
        make = "make the shards with 'data-prep partition' or 'data-prep sites'"
        raise ShardError(f"{path}: {what}; {meant(path)}{make}") from None
    if isinstance(parts, dict):  # first, since another version or layout has other keys
        if (version := parts.get("format_version", FORMAT_VERSION)) not in VERSIONS:
            raise ShardError(f"{path}: {other_version(version)}")
        if parts.get("layout", "horizontal") != "horizontal":
            raise ShardError(f"{path}: vertical shards are not for {_WHOLE_EXAMPLES}; use another scheme")
    spec = as_record(path, FederationSpec, parts)
    entries = [*spec.silos, *filter(None, (spec.test, spec.public))]
    check_entries(path, [entry.file for entry in entries], [entry.labels for entry in entries], spec.classes)
    return spec


def meant(path: Path) -> str:
    """Return "did you mean FOLDER? " if a folder of shards beside that of `path` has nearly its name."""
    with suppress(OSError):
        near = [one for one in path.parent.parent.iterdir() if (one / path.name).is_file()]
        if not path.parent.is_dir() and (hint := did_you_mean(path.parent.name, [one.name for one in near])):
            return hint.replace("'", "'" + f"{path.parent.parent}/".removeprefix("./"), 1)
    return ""


def check_entries(
    path: Path, files: Sequence[str], labels: Sequence[Sequence[int]], classes: int | None
) -> None:
    """Refuse two entries with the same file, and label counts that are not one for each class."""
    in_order = sorted(files)
    if twice := next((file for file, after in pairwise(in_order) if file == after), None):
        raise ShardError(f"{path}: two entries have the file {twice}; {BY_HAND}")
    if wrong := next((counts for counts in labels if len(counts) != (classes or 0)), None):
        of = f"for {classes} classes" if classes else "of targets that have no classes"
        raise ShardError(f"{path}: labels: {len(wrong)} label counts {of}; {BY_HAND}")


def version_of(features: Inputs, targets: Aims | None) -> int:
    """Return the version of the format for a federation with such arrays."""
    if any(one is not None and one.ragged for one in arrays_of(features, targets).values()):
        return RAGGED_VERSION
    return FORMAT_VERSION if targets is None and not isinstance(features, dict) else ARRAYS_VERSION


def check_version(version: int, features: Inputs, targets: Aims | None) -> None:
    """Refuse a version of the format that does not fit such arrays; raise ValueError."""
    if version != (wanted := version_of(features, targets)):
        having = "without" if wanted == FORMAT_VERSION else "with"
        kind = "ragged" if wanted == RAGGED_VERSION else "targets or named"
        raise ValueError(f"format_version {version}; {having} {kind} arrays it is {wanted}")


def arrays_of(features: Inputs, targets: Aims | None) -> dict[str, Features | Targets | None]:
    """Return the format of each array by its path in a split; None means int64 class numbers."""
    return {**by_path("x", features), **by_path("y", targets)}


def seen_as(classes: int | None, targets: Aims | None) -> Seen | dict[str, Seen]:
    """Return the dtype of targets for a model: int64 for class numbers, float32 for values."""
    if isinstance(targets, dict):
        return {name: "float32" if one.classes is None else "int64" for name, one in targets.items()}
    return "float32" if classes is None else "int64"


def other_version(version: Any) -> str:
    """Return the message that a file's version of the format is not known here."""
    known = f"{', '.join(map(str, VERSIONS[:-1]))} and {VERSIONS[-1]}"
    return f"format version {version!r:.20}, this program reads {known}; partition again with its data_prep"
