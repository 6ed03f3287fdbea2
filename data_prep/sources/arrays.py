"""Checks of a user's own arrays: x, y, and optionally x_test,
y_test and silo, from whatever file they come."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.model import Dataset, Rows
from data_prep.sources.reading import finite
from mpifl.common import InputError
from mpifl.data import FEATURE_DTYPES

ARRAYS = ("x", "y", "x_test", "y_test", "silo")
# labels are counted class by class: a stray identifier among them would fill the memory
MOST_CLASSES = 1 << 20


def dataset_of(path: Path, arrays: Mapping[str, Any], files: dict[str, str]) -> Dataset:
    """Make a data set of the arrays of a file or folder, checked; x and x_test may be any Rows, never read
    here.

    Features keep their dtype and have no scale; the number of classes is the largest label + 1.

    Raises:
        InputError: an array is missing, of the wrong shape or dtype, or they do not fit each other.
    """
    x, y = _pair(path, arrays, "x", "y")
    test = _pair(path, arrays, "x_test", "y_test") if {"x_test", "y_test"} & set(arrays) else None
    if test and not len(test[1]):
        raise InputError(f"{path}: x_test is empty; leave it out")
    if test and (test[0].shape[1:], test[0].dtype) != (x.shape[1:], x.dtype):
        found = f"{test[0].dtype} {list(test[0].shape[1:])} an example, x has {x.dtype} {list(x.shape[1:])}"
        raise InputError(f"{path}: x_test has {found}; make them alike")
    silo = _integers(path, "silo", arrays["silo"], x.shape[0]) if "silo" in arrays else None
    classes = 1 + max(int(labels.max(initial=0)) for labels in (y, *(test or ())[1:]))
    return Dataset(str(path), x, y, classes, files, test=test, silo=silo)


def _pair(path: Path, arrays: Mapping[str, Any], x: str, y: str) -> tuple[Rows, np.ndarray]:
    for name in (x, y):
        if name not in arrays:
            raise InputError(f"{path}: has no array '{name}'; it must hold {x} and {y}")
    features = _features(path, x, arrays[x])
    return features, _labels(path, y, arrays[y], features.shape[0])


def _features(path: Path, name: str, x: Rows) -> Rows:
    if x.dtype.name not in FEATURE_DTYPES:
        raise InputError(
            f"{path}: {name} has dtype {x.dtype.name}; convert it to one of {', '.join(FEATURE_DTYPES)}"
        )
    if len(x.shape) < 2 or 0 in x.shape[1:]:
        raise InputError(f"{path}: {name} has shape {list(x.shape)}; it must be [examples, features, ...]")
    return finite(x, f"{path}: {name}")


def _labels(path: Path, name: str, y: np.ndarray, length: int) -> np.ndarray:
    y = _integers(path, name, y, length)
    if y.size and not 0 <= y.min() <= y.max() < MOST_CLASSES:
        raise InputError(
            f"{path}: {name} has labels from {y.min()} to {y.max()}; number the classes 0, 1, 2, ..."
        )
    return y.astype(np.int64)


def _integers(path: Path, name: str, values: np.ndarray, length: int) -> np.ndarray:
    if values.dtype.kind not in "iu":
        raise InputError(f"{path}: {name} has dtype {values.dtype.name}; it must hold integers")
    if values.shape != (length,):
        raise InputError(
            f"{path}: {name} has shape {list(values.shape)}; there are {length} examples, so [{length}]"
        )
    return values
