"""NIfTI volumes without labels, whole or in slices, as a model has learned from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.sources.mask_names import without_masks
from data_prep.sources.medical import library
from data_prep.sources.nifti import NiftiRows, volumes_below
from mpifl.data.shards import Provenance, ids_of

PIECE = 64
"""Examples that are read at a time."""


class UnlabelledVolumes:
    """All volumes below a folder, in the order of their paths; masks of them are left out.

    Args:
        record: The encoding of the training's volumes.

    Attributes:
        told: A line about masks that are there and not read.

    Raises:
        InputError: there are none, another file is among them, or one cannot be read.
    """

    def __init__(self, folder: Path, record: Mapping[str, Any]) -> None:
        library("nibabel", "nifti")
        paths, self.told = without_masks(folder, volumes_below(folder))
        self._names = [path.relative_to(folder).as_posix() for path in paths]
        self._rows = NiftiRows(paths, slices=record.get("example") == "slice")

    def read(self) -> Iterator[tuple[np.ndarray, Provenance]]:
        """Yield examples [m, 1, X, Y] or [m, 1, X, Y, Z] with their places and paths; a slice has its number
        after its path."""
        for start in range(0, len(self._rows), PIECE):
            places = np.arange(start, min(start + PIECE, len(self._rows)))
            ids = ids_of(map(self._called, places.tolist()))
            yield self._rows[places], Provenance(places, ids)

    def _called(self, place: int) -> str:
        name = self._names[int(self._rows.owners[place])]
        return f"{name}:{int(self._rows.place[place])}" if self._rows.slices else name
