"""Write one shard of arrays in memory, for tests and benchmarks; `data_prep` writes those of users."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from mpifl.common import sha256_of
from mpifl.data import Aims, Inputs, check_arrays, label_counts
from mpifl.data.shards.shards import Arrays, ShardEntry, Split, new_shard


def write_shard(
    path: Path,
    arrays: Arrays,
    *,
    silo: int | None,
    name: str,
    features: Inputs,
    classes: int | None,
    targets: Aims | None = None,
) -> ShardEntry:
    """Write one shard aside, rename it into place and return its entry;
    raise ShardError if the arrays do not fit."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    splits = {split: Split(*pair) for split, pair in arrays.items()}
    common: dict[str, Any] = {"features": features, "classes": classes, "targets": targets}
    try:
        for split, held in splits.items():
            check_arrays(f"{path}: {split}", held.x, held.y, **common)
        shapes = {split: (len(held), *_label_shape(held)) for split, held in splits.items()}
        rows = {
            f"{split}/{path}": len(array)
            for split, held in splits.items()
            for path, array in held.stored.items()
        }
        with new_shard(aside, shapes, silo=silo, name=name, rows=rows, **common) as file:
            for split, held in splits.items():
                for part, array in held.stored.items():
                    room = file[f"{split}/{part}"]
                    room[...] = np.asarray(array, room.dtype)
        digest, size = sha256_of(aside), aside.stat().st_size
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    counted = splits["train" if "train" in splits else next(iter(splits))].arrays
    return ShardEntry(
        silo=silo,
        name=name,
        file=path.name,
        examples={split: len(held) for split, held in splits.items()},
        labels=label_counts(counted.get("y"), classes, targets),
        bytes=size,
        sha256=digest,
    )


def _label_shape(held: Split) -> tuple[int, ...]:
    """Return the shape of an example's label, where targets have no names."""
    return () if isinstance(held.y, dict) else held.y.shape[1:]
