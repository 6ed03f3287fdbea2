"""What may be wrong with a vertical folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from data_prep.check.checking import CheckFinding, Finite, doubtful, equal, strays
from data_prep.check.duplicates import Hashes, duplicates
from data_prep.check.groups import in_two, places_of
from data_prep.dataset import release, row_bytes
from data_prep.write import PIECE
from mpifl.common import ShardError
from mpifl.data import label_counts
from mpifl.data.shards import VerticalEntry, VerticalSpec, VerticalSplit, open_vertical, read_vertical


def check_columns(folder: Path, *, duplicated: bool = True) -> tuple[VerticalSpec, list[CheckFinding]]:
    """Look through a vertical folder: each shard, the columns, the targets' holder, and that all have the
    same rows.

    Where nothing is wrong, whole rows that occur more than once are looked for, as `check` does.

    Args:
        duplicated: Look for duplicates.

    Raises:
        ShardError: there is no `federation.json` that can be read.
    """
    spec = read_vertical(folder)
    findings = [*strays(folder, {entry.file for entry in spec.silos}), *_check_entries(spec)]
    held: list[dict[str, VerticalSplit]] = []
    for entry in spec.silos:
        try:
            splits = open_vertical(folder, entry, spec)
            groups = places_of(folder, entry)
        except ShardError as error:
            path = folder / entry.file
            kind = "damaged" if path.exists() else "missing"
            findings.append(CheckFinding(entry.file, kind, str(error).removeprefix(f"{path}: ")))
            continue
        held.append(splits)
        findings += [CheckFinding(found.file, "groups", found.what) for found in in_two(groups)]
        findings += _check_rows(entry, splits, held[0])
        findings += [
            found for name, split in splits.items() for found in _check_split(entry, name, split, spec)
        ]
    if duplicated and not findings:
        findings = [equal(found._replace(file="whole rows")) for found in duplicates(_hashed(held))]
    return spec, [*doubtful(spec), *findings]


def _hashed(silos: Sequence[Mapping[str, VerticalSplit]]) -> Hashes:
    """Hash all rows with the columns of all silos, and their targets."""
    hashes = Hashes()
    for name, split in silos[0].items():
        arrays = [array for held in silos for path, array in held[name].arrays.items() if path != "id"]
        step = max(1, PIECE // sum(map(row_bytes, arrays)))
        for start in range(0, len(split), step):
            hashes.add("", name, *(array[start : start + step] for array in arrays))
            for array in arrays:
                release(array)
    return hashes


def _check_entries(spec: VerticalSpec) -> Iterator[CheckFinding]:
    columns = sorted(column for entry in spec.silos for column in entry.columns)
    if len(columns) != math.prod(spec.features.shape) or columns != list(range(len(columns))):
        yield CheckFinding(
            "federation.json", "columns", "the silos' columns are not every column exactly once"
        )
    if (holders := sum(entry.labels is not None for entry in spec.silos)) != 1:
        yield CheckFinding("federation.json", "labels", f"{holders} silos hold the labels; one must")
    if len(tags := {entry.alignment for entry in spec.silos}) > 1:
        what = f"{len(tags)} alignments, so rows of one place may be different people; align again"
        yield CheckFinding("federation.json", "alignment", what)


def _check_rows(
    entry: VerticalEntry, own: Mapping[str, VerticalSplit], first: Mapping[str, VerticalSplit]
) -> Iterator[CheckFinding]:
    for name, split in own.items():
        if not np.array_equal(split.id, first[name].id):
            what = f"{name}: the ids are not those of the first silo, in the same order"
            yield CheckFinding(entry.file, "rows", what)
    ids = np.concatenate([split.id for split in own.values()])
    if len(np.unique(ids)) < len(ids):
        yield CheckFinding(entry.file, "rows", "an id occurs more than once")


def _check_split(
    entry: VerticalEntry, name: str, split: VerticalSplit, spec: VerticalSpec
) -> Iterator[CheckFinding]:
    finite, step = Finite(spec.features), max(1, PIECE // row_bytes(split.x))
    for start in range(0, len(split.x), step):
        finite(start, split.x[start : start + step])
        release(split.x)
    if finite.bad:
        yield CheckFinding(entry.file, "not finite", finite.what(name))
    if split.y is None or name != "train":
        return
    y = None if isinstance(split.y, dict) else split.y
    if label_counts(y, spec.classes, spec.targets) != entry.labels:
        yield CheckFinding(entry.file, "label counts", "the labels are not as many as federation.json says")
