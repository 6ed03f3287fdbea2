"""Checks of a user's own arrays: x, y, and optionally x_test,
y_test, silo and held_out, from whatever file they come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.model import Dataset, Rows
from data_prep.sources.aims import PLAIN, Wanted, aim_of, integers
from data_prep.sources.reading import finite
from mpifl.common import InputError
from mpifl.data import FEATURE_DTYPES

ARRAYS = ("x", "y", "x_test", "y_test", "silo", "held_out")


def dataset_of(
    path: Path, arrays: Mapping[str, Any], files: dict[str, str], wanted: Wanted = PLAIN
) -> Dataset:
    """Make a data set of the arrays of a file or folder, checked; x and x_test may be any Rows, never read
    here.

    Features keep their dtype; the number of classes is the largest label + 1.

    Args:
        path: The file or folder, as messages name it.
        arrays: By their names in `ARRAYS`.
        files: The sha256 of every file read.
        wanted: What the user says of them.

    Raises:
        InputError: an array is missing, of the wrong shape or dtype, or they do not fit each other.
    """
    has_test = bool({"x_test", "y_test"} & set(arrays))
    pairs = [_pair(path, arrays, *names) for names in (("x", "y"), ("x_test", "y_test"))[: 1 + has_test]]
    (x, y), *held = pairs
    test = held[0] if held else None
    if test and not len(test[1]):
        raise InputError(f"{path}: x_test is empty; leave it out")
    if test and (test[0].shape[1:], test[0].dtype) != (x.shape[1:], x.dtype):
        found = f"{test[0].dtype} {list(test[0].shape[1:])} an example, x has {x.dtype} {list(x.shape[1:])}"
        raise InputError(f"{path}: x_test has {found}; make them alike")
    silo = integers(path, "silo", arrays["silo"], x.shape[0]) if "silo" in arrays else None
    aim = aim_of(path, y, test and test[1], wanted)
    return Dataset(
        str(path),
        x,
        aim.fitted(y),
        aim.classes,
        files,
        scale=_scale(wanted.scale),
        test=test and (test[0], aim.fitted(test[1])),
        silo=silo,
        silo_names=_names(path, silo, wanted.silo_names),
        held=_held(path, arrays["held_out"], x.shape[0]) if "held_out" in arrays else None,
        targets=aim.targets,
    )


def _pair(path: Path, arrays: Mapping[str, Any], x: str, y: str) -> tuple[Rows, np.ndarray]:
    for name in (x, y):
        if name not in arrays:
            raise InputError(f"{path}: has no array '{name}'; it must hold {x} and {y}")
    features = _features(path, x, arrays[x])
    if len(arrays[y]) != (length := features.shape[0]):
        found = f"{y} has shape {list(arrays[y].shape)}; there are {length} examples, so [{length}, ...]"
        raise InputError(f"{path}: {found}")
    return features, arrays[y]


def _features(path: Path, name: str, x: Rows) -> Rows:
    if x.dtype.name not in FEATURE_DTYPES:
        raise InputError(
            f"{path}: {name} has dtype {x.dtype.name}; convert it to one of {', '.join(FEATURE_DTYPES)}"
        )
    if len(x.shape) < 2 or 0 in x.shape[1:]:
        raise InputError(f"{path}: {name} has shape {list(x.shape)}; it must be [examples, features, ...]")
    return finite(x, f"{path}: {name}")


def _held(path: Path, held: np.ndarray, length: int) -> np.ndarray:
    """Return whether each example is for its silo's test split, bools [n]."""
    stored = held.view(np.uint8) if held.dtype.kind == "b" else held  # a file may have bools that are neither
    integers(path, "held_out", stored, length)
    if not (known := (stored == 0) | (stored == 1)).all():
        row = int(np.argmin(known))
        raise InputError(f"{path}: held_out is {stored[row]} in example {row}; it must be 0 or 1")
    return np.asarray(stored == 1)


def _names(path: Path, silo: np.ndarray | None, given: str) -> dict[int, str] | None:
    """Return what the numbers in `silo` are called, in their order."""
    if not given:
        return None
    names = [name.strip() for name in given.split(",")]
    numbers = [] if silo is None else np.unique(silo).tolist()
    if len(names) != len(numbers) or len(set(names)) != len(names) or not all(names):
        found = f"{path}: silo has {len(numbers)} different numbers" if numbers else f"{path}: has no silo"
        raise InputError(f"--option: silo_names={given} given; {found}: give each a name of its own")
    return dict(zip(numbers, names, strict=True))


def _scale(given: str) -> float | None:
    """Return what a model multiplies features by: a number, or a quotient of two."""
    if not given:
        return None
    above, _, below = given.partition("/")
    try:
        scale = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        scale = math.nan
    if not 0 < scale < math.inf:
        raise InputError(f"--option: scale={given} given; it must be a number above 0, such as 1/255")
    return scale
