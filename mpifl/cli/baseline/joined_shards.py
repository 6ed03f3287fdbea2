"""A shard folder with one silo that has the rows of some silos of another folder, in their order."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpifl.common import cannot_be_written, sha256_of
from mpifl.data import OFFSETS, Ragged
from mpifl.data.shards import FederationSpec, ShardEntry, Split, new_shard, open_shard, read_spec

FILE = "silo_0000.h5"


def is_of(folder: Path, entries: Sequence[ShardEntry]) -> bool:
    """Return whether a folder was made of these very shards; its shard need not be there any more."""
    return read_spec(folder / "federation.json").scheme == _scheme(entries)


def join_shards(out: Path, folder: Path, spec: FederationSpec, entries: Sequence[ShardEntry]) -> None:
    """Write a folder with one silo: training, valid and test rows of some silos, one silo after another.

    A shard says which silo it is of, and the only silo is number 0. So even one shard is written anew.

    Args:
        out: The new folder.
        folder: The folder of the silos.
        spec: What that holds.
        entries: The silos.

    Raises:
        InputError: a shard cannot be read, or the folder cannot be written.
    """
    shards = [open_shard(folder, entry, spec).splits for entry in entries]
    splits = {
        split: [shard[split] for shard in shards if split in shard]
        for split in dict.fromkeys(name for entry in entries for name in entry.examples)
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for shared in (spec.test, spec.public):
            if shared is not None:
                _lend(folder / shared.file, out / shared.file)
        name = entries[0].name if len(entries) == 1 else "all silos"
        _write(out / FILE, name, spec, splits)
        entry = ShardEntry(
            silo=0,
            name=name,
            file=FILE,
            examples={split: sum(map(len, parts)) for split, parts in splits.items()},
            labels=np.sum([entry.labels for entry in entries], axis=0, dtype=np.int64).tolist(),
            bytes=(out / FILE).stat().st_size,
            sha256=sha256_of(out / FILE),
        )
        spec.model_copy(update={"silos": [entry], "scheme": _scheme(entries)}).write(out)
    except OSError as error:
        raise cannot_be_written(out, error) from None


def remove_rows(out: Path) -> None:
    """Remove the rows from a folder; what it held stays described."""
    for path in out.glob("*.h5"):
        path.unlink()


def _scheme(entries: Sequence[ShardEntry]) -> dict[str, object]:
    return {"name": "baseline", "of": [entry.sha256 for entry in entries]}


def _lend(source: Path, path: Path) -> None:
    """Make a file be there under another name, if possible without a copy."""
    path.unlink(missing_ok=True)
    try:
        os.link(source, path)
    except OSError:
        shutil.copyfile(source, path)


def _write(path: Path, name: str, spec: FederationSpec, splits: dict[str, list[Split]]) -> None:
    """Write the shard: each array of each split, one silo after another."""
    path.unlink(missing_ok=True)
    labels, rows = {}, {}
    for split, parts in splits.items():
        arrays = [part.arrays for part in parts]
        y = arrays[0].get("y")
        shape = y.shape[1:] if isinstance(y, np.ndarray) else ()
        labels[split] = (sum(map(len, parts)), *shape)
        for at, one in arrays[0].items():
            if isinstance(one, Ragged):
                rows[f"{split}/{at}"] = sum(len(part.stored[at]) for part in parts)
    about: dict[str, Any] = {"features": spec.features, "classes": spec.classes, "targets": spec.targets}
    with new_shard(path, labels, silo=0, name=name, rows=rows, **about) as file:
        for split, parts in splits.items():
            begins: dict[str, int] = {}
            for stored in (part.stored for part in parts):
                for at, array in stored.items():
                    begin = begins.get(at, 0)
                    if at.endswith(OFFSETS):  # n + 1 numbers, of which the next silo's first is the last
                        before = int(file[f"{split}/{at}"][begin]) if begin else 0
                        file[f"{split}/{at}"][begin : begin + len(array)] = array + before
                        begins[at] = begin + len(array) - 1
                    else:
                        file[f"{split}/{at}"][begin : begin + len(array)] = array
                        begins[at] = begin + len(array)
