"""How shards may be compressed: smaller on the disk, but then no longer mapped into memory."""

from __future__ import annotations

from typing import Any

from mpifl.errors import InputError

COMPRESSIONS = ("none", "gzip", "lz4", "zstd")


def filters_of(compression: str) -> dict[str, Any] | None:
    """Return h5py's options for a compression; None for none.

    Raises:
        InputError: there is no such compression, or hdf5plugin, which brings lz4 and zstd, is not installed.
    """
    if compression not in COMPRESSIONS:
        raise InputError(f"--compression: '{compression}' is unknown; there are {', '.join(COMPRESSIONS)}")
    if compression == "none":
        return None
    if compression == "gzip":
        return {"compression": "gzip", "compression_opts": 4, "shuffle": True}
    try:
        import hdf5plugin
    except ImportError:
        raise InputError(f"--compression: {compression} needs hdf5plugin; pip install 'mpifl[compression]'") from None
    chosen = hdf5plugin.LZ4() if compression == "lz4" else hdf5plugin.Zstd(clevel=3)
    return {**chosen, "shuffle": True}
