"""Checks of a shard file against `federation.json`, before any of its data are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mpifl.common import ShardError
from mpifl.data import (
    OFFSETS,
    ArrayForm,
    Targets,
    aims_by_path,
    check_counts,
    check_forms,
    check_picked,
    form_of,
    place,
)
from mpifl.data.hdf5 import StoredArray
from mpifl.data.shards.federation_spec import VERSIONS, FederationSpec, ShardEntry, arrays_of, other_version

FORMAT = "mpifl-shard"


def check_attributes(
    path: Path, found: Mapping[str, Any], silo: int | None, version: int, classes: int | None
) -> None:
    """Refuse a file whose format, version, silo or number of classes differs from `federation.json`."""
    if found.get("format") != FORMAT:
        raise ShardError(f"{path}: an HDF5 file, but not a shard; write it with data_prep")
    if (own := found.get("format_version")) not in VERSIONS:
        raise ShardError(f"{path}: {other_version(own)}")
    if own != version:
        said = f"format version {own}, federation.json has {version}"
        raise ShardError(f"{path}: {said}; partition again or restore it")
    number = -1 if silo is None else silo
    if found.get("silo") != number:
        raise ShardError(
            f"{path}: the shard of silo {found.get('silo')}, "
            f"federation.json says {number}; restore the right file"
        )
    if found.get("classes") != (-1 if classes is None else classes):
        told = [("no" if count in (None, -1) else count) for count in (found.get("classes"), classes)]
        raise ShardError(f"{path}: has {told[0]} classes, federation.json {told[1]}; partition again")


def check_sets(
    path: Path, split: str, sets: Mapping[str, StoredArray], entry: ShardEntry, spec: FederationSpec
) -> None:
    """Check a file's data sets against `federation.json`, before any data are read."""
    where, declared = f"{path}: {split}", entry.examples.get(split)
    forms: dict[str, ArrayForm] = dict(sets)
    for name, one in arrays_of(spec.features, spec.targets).items():
        if one is not None and one.ragged:
            forms[name] = form_of(
                f"{path}: {split}/{name}", sets[name], forms.pop(f"{name}{OFFSETS}"), one.shape[0]
            )
    x, y = ({name: form for name, form in forms.items() if name[0] == part} for part in "xy")
    if any(form.shape[0] != declared for form in forms.values()):
        found = f"{_rows(x.values())} features and {_rows(y.values())} labels"
        raise ShardError(f"{where}: {found}, federation.json says {declared}; restore the right file")
    if split == "train" and declared == 0:
        raise ShardError(f"{where}: an empty silo; partition with --min-examples 1 or more")
    check_forms(where, x, y, spec.features, spec.classes, spec.targets)
    for name, (_, targets) in aims_by_path(spec.classes, spec.targets).items():
        check_picked(place(where, name), y[name], targets)
    if spec.classes is not None:
        ignored = isinstance(spec.targets, Targets) and spec.targets.ignore is not None
        check_counts(where, y["y"], entry.examples, entry.labels, most=ignored)


def _rows(forms: Iterable[ArrayForm]) -> str:
    return " or ".join(map(str, sorted({form.shape[0] for form in forms})))
