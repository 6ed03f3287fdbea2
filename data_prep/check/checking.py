"""What may be wrong with a folder of shards: each by itself, and all of them together."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from data_prep.check.duplicates import Equal, Hashes, duplicates
from data_prep.check.groups import numbered_by_sites, parted, unseen as unseen_groups
from data_prep.dataset import (
    all_seen,
    codes_told,
    doubts,
    ids_told,
    lone_levels,
    odd_told,
    release,
    row_bytes,
    share_ids,
    units_told,
    unseen,
)
from data_prep.write import AGREED, PIECE
from mpifl.common import ShardError, visible
from mpifl.data import Column, Features, Inputs, Ragged, Targets, flat, label_counts
from mpifl.data.shards import (
    FederationSpec,
    Provenance,
    Shard,
    ShardEntry,
    Split,
    VerticalSpec,
    open_shard,
    provenance_of,
    read_federation,
)

FILE = "federation.json"


@dataclass(frozen=True)
class CheckFinding:
    """One thing that is wrong, or that may be: in which file, of what kind, and what was found."""

    file: str
    kind: str
    what: str
    severity: Literal["fault", "warning"] = "fault"


def check(folder: Path, *, duplicated: bool = True) -> tuple[FederationSpec, list[CheckFinding]]:
    """Look through a folder of shards.

    Every shard is held against its entry: size, sha256, format, shape, dtype, label range, label counts,
    finite targets. It is read once for NaN and infinite features, and for examples that occur more than once,
    in a silo or in several. That is a fault where one is trained on (train, public) and held out (valid,
    test), a warning elsewhere, where groups or ids say that they are of different persons, and of short ends
    of longer texts: two texts may well end alike. A fault is
    also a group in two splits or at two silos, where shards say whose examples are. Memory holds 17 bytes an
    example.

    Args:
        duplicated: Look for duplicates.

    Raises:
        ShardError: there is no `federation.json` that can be read.
    """
    spec = read_federation(folder)
    entries = [*spec.silos, *filter(None, (spec.test, spec.public))]
    findings, hashes = [*doubtful(spec), *strays(folder, {entry.file for entry in entries})], Hashes()
    for entry in entries:
        findings += _check_shard(folder, entry, spec, hashes if duplicated else None)
    with contextlib.suppress(ShardError):  # what is wrong with it has been found above
        findings += [CheckFinding(FILE, "units", told, "warning") for told in units_told(folder, spec)]
        findings += [CheckFinding(FILE, "codes", told, "warning") for told in codes_told(folder, spec)]
        findings += [CheckFinding(FILE, "numbers", told, "warning") for told in odd_told(folder, spec)]
        findings += [CheckFinding(FILE, "levels", told, "warning") for told in lone_levels(folder, spec)]
    again = [CheckFinding(found.file, "groups", found.what) for found in parted(folder, spec)]
    with contextlib.suppress(ShardError):
        again += [CheckFinding(FILE, "ids", told, "warning") for told in ids_told(folder, spec)]
    findings += again
    findings += [CheckFinding(FILE, "groups", told, "warning") for told in unseen_groups(spec)]
    if duplicated:
        whose = {} if again else {one.file: _say_whose(folder, one) for one in entries}
        findings += [equal(found, apart=_apart(folder, found, whose, spec)) for found in duplicates(hashes)]
    return spec, findings


def _say_whose(folder: Path, entry: ShardEntry) -> str:
    """Say by what a shard tells whose each row is: by an id, which other shards have too, or a group."""
    with contextlib.suppress(ShardError):
        given = provenance_of(folder, entry)
        if given and all(one.ids is not None for one in given.values()):
            return "id"
    return "group" if entry.groups is not None else ""


def _apart(folder: Path, found: Equal, whose: Mapping[str, str], spec: FederationSpec) -> bool:
    """Tell whether equal rows are told to be of different persons, who may well have the same values: all
    say whose they are, and no group or id is in two splits."""
    files = {found.file, found.other} if found.other else whose.keys()
    if len(files) == 1 or not numbered_by_sites(spec):
        return all(whose.get(file) for file in files)
    entries = [one for one in (*spec.silos, spec.test, spec.public) if one and one.file in files]
    with contextlib.suppress(ShardError):  # equal ids of two sites may be of one person, with equal rows
        return all(whose.get(file) == "id" for file in files) and not share_ids(folder, entries)
    return False


def doubtful(spec: FederationSpec | VerticalSpec) -> list[CheckFinding]:
    """Return what is doubtful in `federation.json`, as warnings."""
    return [CheckFinding(FILE, doubt.kind, doubt.what, "warning") for doubt in doubts(spec, spelled=True)]


def equal(found: Equal, *, apart: bool = False) -> CheckFinding:
    """Return what equal examples are: a fault where some are trained on and held out, too, unless they are
    known to be of different persons."""
    if found.leak and apart:
        return CheckFinding(found.file, "held out", f"{found.what}; of different persons", "warning")
    if found.leak:
        return CheckFinding(found.file, "held out", found.what)
    return CheckFinding(found.file, "duplicates", found.what, "warning")


def faults(findings: Sequence[CheckFinding]) -> list[CheckFinding]:
    """Return those that are wrong, without warnings."""
    return [finding for finding in findings if finding.severity == "fault"]


def _check_shard(
    folder: Path, entry: ShardEntry, spec: FederationSpec, hashes: Hashes | None
) -> Iterator[CheckFinding]:
    path = folder / entry.file
    try:
        shard = open_shard(folder, entry, spec)
    except ShardError as error:
        missing = "missing" if not path.exists() else "damaged"
        yield CheckFinding(entry.file, missing, str(error).removeprefix(f"{path}: "))
        return
    yield from _check_labels(shard, entry, spec)
    ends = dict[str, np.ndarray]()
    try:
        ends = _ends_of_texts(shard, provenance_of(folder, entry), spec)
    except ShardError as error:
        yield CheckFinding(entry.file, "rows", str(error).removeprefix(f"{path}: "))
    for name, split in shard.splits.items():
        finite = Finite(spec.features)
        for start, piece in _pieces(split):
            finite(start, *(array for path, array in piece.items() if path[0] == "x"))
            if hashes is not None:
                of = ends[name][start : start + len(next(iter(piece.values())))] if name in ends else None
                hashes.add(entry.file, name, *piece.values(), ends=of)
        if finite.bad:
            yield CheckFinding(entry.file, "not finite", finite.what(name))


def _ends_of_texts(
    shard: Shard, given: Mapping[str, Provenance], spec: FederationSpec
) -> dict[str, np.ndarray]:
    """Return which examples are the last sequence of a text that has several in the shard, and shorter than a
    sequence may be: by split, bool [n]."""
    aim = spec.targets
    rows = {split: one.rows for split, one in given.items() if one.rows is not None}
    if not isinstance(aim, Targets) or aim.ignore is None or len(aim.shape) != 1 or not rows:
        return {}
    texts, counts = np.unique(np.concatenate([*rows.values()]), return_counts=True)
    found = {}
    for split, of in rows.items():
        y = shard[split].arrays["y"]
        short = y.lengths < aim.shape[0] if isinstance(y, Ragged) else y[:, -1] == aim.ignore
        found[split] = short & np.isin(of, texts[counts > 1])
    return found


def _check_labels(shard: Shard, entry: ShardEntry, spec: FederationSpec) -> Iterator[CheckFinding]:
    counted = shard["train"] if "train" in shard else next(iter(shard.splits.values()))
    counts = label_counts(counted.arrays.get("y"), spec.classes, spec.targets)
    if counts != entry.labels:
        label = next(
            (at for at, pair in enumerate(zip(counts, entry.labels, strict=False)) if pair[0] != pair[1]), 0
        )
        names = spec.class_names or []
        called = f"label {label}" + (f" ({names[label]})" if label < len(names) else "")
        said = f"{called} occurs {counts[label]} times, federation.json says {[*entry.labels, 0][label]}"
        yield CheckFinding(entry.file, "label counts", said)


class Finite:
    """Count of the examples with features that are no numbers to a model."""

    def __init__(self, features: Inputs) -> None:
        one = features if isinstance(features, Features) else None
        self._seen = (one.scale, one.offset) if one else (None, 0.0)
        self._beyond = False
        self.bad = 0
        self.first = -1

    def __call__(self, start: int, *arrays: Column) -> None:
        """Count those of some rows; `start` is the first one's position."""
        odd = [x for x in arrays if not all_seen(flat(x), *self._seen)]
        if not odd:
            return
        rows = np.flatnonzero(np.any([_not_finite(x, *self._seen) for x in odd], axis=0))
        if len(rows) and not self.bad:
            self.first = start + int(rows[0])
        self.bad += len(rows)
        self._beyond |= any(bool(np.isfinite(flat(x)).all()) for x in odd)

    def what(self, split: str) -> str:
        """Say how many there are."""
        features = "NaN or infinite features" + " in float32" * self._beyond
        return f"{split}: {self.bad} examples have {features}, the first is {self.first}"


def _not_finite(x: Column, scale: float | None, offset: float) -> np.ndarray:
    """Return which examples [n] have a number that is none to a model."""
    rows = flat(x)
    beyond = unseen(rows, scale, offset).reshape(len(rows), math.prod(rows.shape[1:]))
    wrong: np.ndarray = np.any(beyond, axis=1)
    if not isinstance(x, Ragged):
        return wrong
    examples = np.repeat(np.arange(len(x)), x.lengths)
    return np.bincount(examples, wrong, minlength=len(x)) > 0


def _pieces(split: Split) -> Iterator[tuple[int, dict[str, Column]]]:
    """Yield the arrays of a split piece by piece,
    with the position of the first row; pages are let go after each."""
    step = max(1, PIECE // sum(map(row_bytes, split.arrays.values())))
    for start in range(0, len(split), step):
        yield start, {path: array[start : start + step] for path, array in split.arrays.items()}
        for array in split.arrays.values():
            release(array)


def strays(folder: Path, files: set[str]) -> Iterator[CheckFinding]:
    """Find what lies in the folder and is not described; a site's own entry belongs to its shard, and to all
    what sites had agreed on."""
    expected = files | {FILE, AGREED} | {str(Path(file).with_suffix(".json")) for file in files}
    for path in sorted(folder.iterdir()):
        if path.name not in expected:
            yield CheckFinding(path.name, "extra", "federation.json does not name it; remove it")


def show_findings(folder: Path, silos: int, findings: Sequence[CheckFinding], console: Console) -> None:
    """Print a table of what is wrong or may be, and a line that counts both."""
    if findings:
        table = Table("file", "severity", "kind", "found", header_style="bold")
        for finding in findings:
            cells = (finding.file, finding.severity, finding.kind, finding.what)
            table.add_row(*(Text(visible(cell)) for cell in cells))
        console.print(table)
    wrong = len(faults(findings))
    warnings = len(findings) - wrong
    told = [
        f"{silos} silo{'s' * (silos != 1)}",
        _counted(wrong, "thing") + " wrong" if wrong else "nothing wrong",
    ]
    console.print(
        Text(f"{folder}: {', '.join([*told, *([_counted(warnings, 'warning')] if warnings else [])])}")
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}"
