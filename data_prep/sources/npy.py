"""A user's own arrays from a folder of NumPy .npy files, mapped into memory: any size will do."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_prep.dataset import Dataset
from data_prep.sources.aims import Wanted
from data_prep.sources.arrays import chosen, dataset_of, with_options
from data_prep.sources.reading import Digests, held_in, needed, unreadable
from data_prep.tables import MAGIC, size_of_array
from mpifl.common import InputError, mapped


@with_options
def read_npy(data: Path | None, wanted: Wanted) -> Dataset:
    """Map x.npy [n, *shape] and y.npy [n, ...],
    and where present x_test.npy, y_test.npy, silo.npy [n], held_out.npy [n]."""
    folder = needed("npy", data, "measurements, a folder with x.npy and y.npy")
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; --data must name the one with x.npy and y.npy")
    stored = {path.stem: path for path in folder.glob("*.npy") if path.is_file()}
    paths = {name: held_in(folder, stored[name]) for name in chosen(stored, wanted)}
    arrays = {name: _mapped(path) for name, path in paths.items()}
    files = Digests()
    for path in paths.values():
        files.note(path)
    return dataset_of(folder, arrays, files, wanted, unread=stored)


def _mapped(path: Path) -> np.ndarray:
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise InputError(f"{path}: not a .npy file; write it with numpy.save")
            file.seek(0)
            if (promised := size_of_array(file)) > (size := path.stat().st_size):
                raise ValueError(f"its header promises {promised:,} bytes, there are {size:,}")
        mapped.note(path, size)
        # labels and silos, which are used whole, are mapped like the features: pages are read as they are
        # used
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, EOFError, OverflowError) as error:  # the last is numpy 1's, where 2 checks first
        if "object" in str(error).lower():
            to_do = "store numbers, ragged rows one after another with NAME.offsets"
            raise InputError(f"{path}: holds Python objects (or is ragged); {to_do}") from None
        raise InputError(f"{path}: damaged or cut short ({error}); write it again") from None
