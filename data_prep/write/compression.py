"""How shards may be compressed: smaller on the disk, but then no longer mapped into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py

from mpifl.common import InputError, ShardError, did_you_mean
from mpifl.common.machine import floors

COMPRESSIONS = ("none", "gzip", "lz4", "zstd")
NUMBERS = {"gzip": h5py.h5z.FILTER_DEFLATE, "lz4": 32004, "zstd": 32015}
"""Those of the filters in the HDF Group's registry."""


def filters_of(compression: str) -> dict[str, Any] | None:
    """Return h5py's options for a compression; None for none.

    Raises:
        InputError: there is no such compression, or hdf5plugin, which brings lz4 and zstd, is not installed.
    """
    if compression not in COMPRESSIONS:
        hint = did_you_mean(compression, COMPRESSIONS)
        raise InputError(
            f"--compression: '{compression}' is unknown; {hint}there are {', '.join(COMPRESSIONS)}"
        )
    if compression == "none":
        return None
    if compression == "gzip":
        return {"compression": "gzip", "compression_opts": 4, "shuffle": True}
    try:
        import hdf5plugin
    except ImportError:
        raise InputError(
            f"--compression: {compression} needs hdf5plugin; pip install 'mpifl[compression]'"
        ) from None
    floors.hold("compression")
    chosen = hdf5plugin.LZ4() if compression == "lz4" else hdf5plugin.Zstd(clevel=3)
    return {**chosen, "shuffle": True}


def compression_of(path: Path) -> str:
    """Return which of `COMPRESSIONS` a shard was written with; the filter itself need not be installed."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            plan = next(iter(file.values()))["x"].id.get_create_plist()
            used = {plan.get_filter(position)[0] for position in range(plan.get_nfilters())}
    except (OSError, StopIteration, KeyError) as error:
        raise ShardError(f"{path}: cannot be read ({error}); remove its folder and make it again") from None
    return next((name for name, number in NUMBERS.items() if number in used), "none")


def kept_in(path: Path) -> set[str]:
    """Return which arrays of where examples were given a shard has, by their names in its first split."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            return {"row", "id", "id.offsets"} & set(next(iter(file.values())))
    except (OSError, StopIteration) as error:
        raise ShardError(f"{path}: cannot be read ({error}); remove its folder and make it again") from None
