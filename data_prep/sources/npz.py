"""A user's own arrays from a NumPy .npz file: x, y, and optionally x_test, y_test and silo."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from data_prep.dataset import Dataset
from data_prep.sources.arrays import ARRAYS, dataset_of
from data_prep.sources.reading import needed
from mpifl.errors import InputError
from mpifl.files import sha256_of


def read_npz(data: Path | None, seed: int) -> Dataset:
    """Read x [n, *shape], y [n] integers, and where present x_test, y_test and silo [n] integers; never a pickle.

    The arrays are read into memory whole: a .npz file cannot be mapped. What does not fit belongs into npy or hdf5.
    """
    path = needed("npz", data, "measurements.npz")
    arrays = _load(path)
    return dataset_of(path, arrays, {path.name: sha256_of(path)})


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.lib.npyio.NpzFile):  # and not the array of a .npy file
            with file:
                return {name: _member(path, file, name) for name in ARRAYS if name in file}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (zipfile.BadZipFile, EOFError, ValueError):
        pass  # numpy takes whatever it does not know for a pickle, and says so: that would mislead
    raise InputError(f"{path}: not a .npz file, or cut short; write it with numpy.savez")


def _member(path: Path, file: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    try:
        array = file[name]
    except ValueError as error:
        if "pickle" in str(error):
            raise InputError(
                f"{path}: {name} holds Python objects (or is ragged); store numbers, all rows alike"
            ) from None
        raise InputError(f"{path}: {name} is damaged ({error}); write it again") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, MemoryError) as error:
        raise InputError(f"{path}: {name} is damaged ({error}); write it again") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: {name} is no array; write the file with numpy.savez")
    return array
