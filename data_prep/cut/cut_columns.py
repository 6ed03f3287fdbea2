"""Cut the columns of a data set over silos: the same rows everywhere, the targets at one."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.cut.partitioning import HEADER, WriteOptions, described
from data_prep.dataset import Dataset, Rows, blocks_at, fields, renumbered, row_bytes
from data_prep.schemes import (
    Options,
    Scheme,
    Shares,
    check_groups,
    chosen,
    find_scheme,
    named_columns,
    resolve,
    shape_of,
)
from data_prep.sources import find_source
from data_prep.write import PIECE, check_free, check_room, filters_of, written_atomically
from mpifl.common import InputError, numpy_stream, sha256_of
from mpifl.data import aims_by_path, check_labels, label_counts
from mpifl.data.hdf5 import WrittenFile
from mpifl.data.shards import FederationSpec, VerticalEntry, VerticalSpec, by_path, new_vertical, write_groups

Taken = tuple[Rows, np.ndarray, np.ndarray, int]
"""A split: rows, their targets, the positions in both that it has, ascending, and the id of the rows' first.
"""


def partition_columns(
    source: str,
    data: Path | None,
    out: Path,
    scheme: str,
    silos: int | None,
    seed: int,
    *,
    options: Options,
    shares: Shares,
    name: str | None = None,
    source_options: Sequence[str] = (),
    manner: WriteOptions | None = None,
    keep: str | None = None,
) -> VerticalSpec:
    """Read a source and write some of its columns for every silo; return what `federation.json` says.

    The same source, seed and options give the same bytes. The source's own test set is every silo's split
    `test`; its rows' ids go on where those of the training set end. Memory holds the targets and a piece of
    the rows.

    Raises:
        InputError: anything given is wrong; nothing is left of `out` then.
    """
    read, cut, manner = find_source(source, source_options), find_scheme(scheme), manner or WriteOptions()
    options, filters = resolve(scheme, cut, options), filters_of(manner.compression)
    _refuse(shares, manner, keep)
    check_free(out)
    dataset = read(data, seed)
    check_groups(dataset)
    _check_examples(dataset, options["min_examples"])
    _check_targets(dataset)
    dealt = _dealt(cut, dataset, silos, seed, options)
    splits = _splits(dataset, shares, seed)
    dataset = replace(dataset.fitted(splits["train"][2]), encoding=None)  # of whole rows, which no party has
    check_room(out, _room(splits, len(dealt)))
    given = {key: value for key, value in options.items() if value not in ("", math.inf)}
    cut_by = {"name": scheme, **given, **shares.told(dataset)}
    spec = described(dataset, name or f"{source}-{scheme}", seed, cut_by, source, source_options)
    common = spec.model_dump(exclude={"silos", "test", "public"})
    with written_atomically(out) as folder:
        entries = _write(folder, spec, dealt, options, splits, _owners(dataset, splits), filters=filters)
        made = VerticalSpec(**common, silos=entries)
        made.write(folder)
    return made


def _dealt(cut: Scheme, data: Dataset, silos: int | None, seed: int, options: Options) -> list[np.ndarray]:
    """Return the columns of every silo."""
    if ";" not in options["columns"]:
        rng = numpy_stream(seed, "partition")
        return cut.assign(data.one.shape, silos, rng, **chosen(cut.assign, options))
    if options["sizes"] or options["alpha"] != math.inf or options["along"] != "flat":
        raise InputError("--columns: given by name; leave --sizes, --alpha and --along out")
    return named_columns(options["columns"], data.feature_names, silos, options["label_silo"])


def _room(splits: Mapping[str, Taken], silos: int) -> int:
    """Return the bytes that uncompressed shards take."""
    size = sum(len(at) * (row_bytes(x) + 8 * silos + row_bytes(y)) for x, y, at, _ in splits.values())
    return size + HEADER * silos


def _check_examples(data: Dataset, least: int) -> None:
    if len(data) < least:
        found = f"{data.where} has {len(data)} examples, which every silo has"
        raise InputError(f"--min-examples: {found}, {least} asked; lower it")


def _check_targets(data: Dataset) -> None:
    """Refuse targets of unequal lengths."""
    if any(one is not None and one.ragged for _, one in aims_by_path(data.classes, data.targets).values()):
        told = f"targets of {data.where} are of unequal lengths"
        raise InputError(f"--scheme: {told}, and vertical takes one length; use iid or natural")


def _alignment(spec: FederationSpec) -> str:
    """Return the tag of all shards of a cut: the same for the same rows in the same order, else another."""
    what = {"seed": spec.seed, "scheme": spec.scheme, "source": spec.source}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]


def _refuse(shares: Shares, manner: WriteOptions, keep: str | None) -> None:
    if keep is not None:
        raise InputError(
            f"--keep: {keep} given; vertical shards always have the numbers of their rows; leave it out"
        )
    if shares.public:
        raise InputError("--public: vertical silos share all their rows; leave it out")
    if manner.resume:
        raise InputError("--resume: vertical shards are written in one go; leave it out")


def _splits(data: Dataset, shares: Shares, seed: int) -> dict[str, Taken]:
    """Hold rows out, the same at all silos; positions ascend,
    so that the source is read from front to back."""
    if data.test and (shares.test or shares.test_last or (data.held is not None and data.held.any())):
        found = f"{data.where} has a test set of its own"
        raise InputError(f"--test: {found}, which is that of all silos; leave it out")
    parts = shares.split(np.arange(len(data)), seed, 0, data)
    splits: dict[str, Taken] = {split: (data.x, data.y, np.sort(at), 0) for split, at in parts.items()}
    if data.test:
        x, y = data.test
        splits["test"] = (x, y, np.arange(len(y)), len(data))
    return splits


def _owners(data: Dataset, splits: Mapping[str, Taken]) -> dict[str, np.ndarray]:
    """Return whose the rows of each split are, by numbers; nothing where it is not known."""
    if data.groups is None:
        return {}
    of_test = data.groups.of_test
    of = {split: of_test if first else data.groups.of for split, (_, _, _, first) in splits.items()}
    parts = {split: groups[splits[split][2]] for split, groups in of.items() if groups is not None}
    return dict(zip(parts, renumbered(list(parts.values())), strict=True))


def _write(
    folder: Path,
    spec: FederationSpec,
    dealt: Sequence[np.ndarray],
    options: Options,
    splits: Mapping[str, Taken],
    owners: Mapping[str, np.ndarray],
    filters: dict[str, Any] | None,
) -> list[VerticalEntry]:
    """Write all shards, reading the source once, and return their entries."""
    holder, digits = options["label_silo"], max(4, len(str(len(dealt) - 1)))
    aims: dict[str, Any] = {"classes": spec.classes, "targets": spec.targets}
    paths = [folder / f"silo_{silo:0{digits}d}.h5" for silo in range(len(dealt))]
    examples = {split: len(at) for split, (_, _, at, _) in splits.items()}
    told: list[dict[str, Any]] = []
    for silo, (path, columns) in enumerate(zip(paths, dealt, strict=True)):
        shape = shape_of(columns, spec.single.shape, options["along"])
        features = spec.single.model_copy(update={"shape": shape})
        name = f"silo {silo}, labels" if silo == holder else f"silo {silo}"
        told.append({"silo": silo, "name": name, "features": features, "alignment": _alignment(spec)})
        labels = splits["train"][1].shape[1:] if silo == holder else None
        with new_vertical(path, examples, labels, **told[-1], **aims, filters=filters) as file:
            _write_rows(file, splits, spec, labelled=silo == holder)
            write_groups(file, owners, filters)
    _write_columns(paths, dealt, splits)
    _, y, at, _ = splits["train"]
    counted = label_counts(y[at] if spec.classes else None, **aims)
    for facts, path, columns in zip(told, paths, dealt, strict=True):
        facts |= {"file": path.name, "columns": columns.tolist(), "examples": examples}
        facts |= {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        facts["labels"] = counted if facts["silo"] == holder else None
        facts["groups"] = {split: len(np.unique(of)) for split, of in owners.items()} or None
    return [VerticalEntry(**facts) for facts in told]


def _write_rows(
    file: WrittenFile, splits: Mapping[str, Taken], spec: FederationSpec, *, labelled: bool
) -> None:
    """Write what does not depend on the columns: the rows' ids, and at their holder the targets."""
    aims = aims_by_path(spec.classes, spec.targets)
    for split, (_, y, at, first) in splits.items():
        file[f"{split}/id"][...] = first + at
        for path, rows in by_path("y", fields(y[at])).items() if labelled else ():
            check_labels(f"{split}/{path}", rows, *aims[path])
            room = file[f"{split}/{path}"]
            room[...] = rows.astype(room.dtype, copy=False)


def _write_columns(paths: Sequence[Path], dealt: Sequence[np.ndarray], splits: Mapping[str, Taken]) -> None:
    """Read every split once, and write to every file its columns."""
    for split, (rows, _, at, _) in splits.items():
        for start, rows_read in blocks_at(rows, at, PIECE):
            block = rows_read.reshape(len(rows_read), -1)
            for path, columns in zip(paths, dealt, strict=True):
                with WrittenFile(path, "r+") as file:
                    room = file[f"{split}/x"]
                    room[start : start + len(block)] = block[:, columns].reshape(-1, *room.shape[1:])
