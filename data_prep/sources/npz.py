"""A user's own arrays from a NumPy .npz file: x, y, and optionally x_test, y_test and silo."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from data_prep.dataset import Dataset
from mpifl.errors import InputError
from mpifl.files import sha256_of
from mpifl.shards import FEATURE_DTYPES

ARRAYS = ("x", "y", "x_test", "y_test", "silo")
MOST_CLASSES = 1 << 20  # labels are counted class by class: a stray identifier among them would fill the memory


def read_npz(data: Path | None, seed: int) -> Dataset:
    """Read x [n, *shape], y [n] integers, and where present x_test, y_test and silo [n] integers; never a pickle.

    Features keep their dtype and have no scale; the number of classes is the largest label + 1.
    """
    if data is None:
        raise InputError("--data: not given; 'npz' needs the file, for instance --data measurements.npz")
    arrays = _load(data)
    x, y = _pair(data, arrays, "x", "y")
    test = _pair(data, arrays, "x_test", "y_test") if {"x_test", "y_test"} & set(arrays) else None
    if test and (test[0].shape[1:], test[0].dtype) != (x.shape[1:], x.dtype):
        found = f"{test[0].dtype} {list(test[0].shape[1:])} an example, x has {x.dtype} {list(x.shape[1:])}"
        raise InputError(f"{data}: x_test has {found}; make them alike")
    silo = _integers(data, "silo", arrays["silo"], len(x)) if "silo" in arrays else None
    classes = 1 + max(int(labels.max(initial=0)) for labels in (y, *(test or ())[1:]))
    return Dataset(str(data), x, y, classes, {data.name: sha256_of(data)}, test=test, silo=silo)


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


def _pair(path: Path, arrays: Mapping[str, np.ndarray], x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels, checked."""
    for name in (x, y):
        if name not in arrays:
            raise InputError(f"{path}: has no array '{name}'; it must hold {x} and {y}")
    features = _features(path, x, arrays[x])
    return features, _labels(path, y, arrays[y], len(features))


def _features(path: Path, name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype.name not in FEATURE_DTYPES:
        raise InputError(f"{path}: {name} has dtype {x.dtype.name}; convert it to one of {', '.join(FEATURE_DTYPES)}")
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise InputError(f"{path}: {name} has shape {list(x.shape)}; it must be [examples, features, ...]")
    if x.dtype.kind == "f" and not (finite := np.isfinite(x)).all():
        example = int(np.argwhere(~finite)[0, 0])
        raise InputError(f"{path}: {name} has NaN or infinite values, first in example {example}; fill or drop them")
    return x


def _labels(path: Path, name: str, y: np.ndarray, length: int) -> np.ndarray:
    y = _integers(path, name, y, length)
    if len(y) and not 0 <= y.min() <= y.max() < MOST_CLASSES:
        raise InputError(f"{path}: {name} has labels from {y.min()} to {y.max()}; number the classes 0, 1, 2, ...")
    return y.astype(np.int64)


def _integers(path: Path, name: str, values: np.ndarray, length: int) -> np.ndarray:
    if values.dtype.kind not in "iu":
        raise InputError(f"{path}: {name} has dtype {values.dtype.name}; it must hold integers")
    if values.shape != (length,):
        raise InputError(f"{path}: {name} has shape {list(values.shape)}; there are {length} examples, so [{length}]")
    return values
