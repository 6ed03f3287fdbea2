"""Names in place of numbers, or beside them: of classes, silos and columns of a user's own arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_prep.tables import ordered
from mpifl.common import InputError

TEXTS = ("y", "y_test", "silo")
"""Arrays that may hold texts, which are then the names of classes and silos."""


class Named(NamedTuple):
    """Arrays whose texts are numbers, and the names that these have; None where there were no texts."""

    arrays: dict[str, Any]
    classes: tuple[str, ...] | None
    silos: tuple[str, ...] | None


def numbered(path: Path, arrays: Mapping[str, Any]) -> Named:
    """Number the texts of targets and silos, in the order of the names.

    Raises:
        InputError: one is empty, or y is of texts and y_test is not.
    """
    found, names = dict(arrays), dict[str, tuple[str, ...] | None]()
    for several in (("y", "y_test"), ("silo",)):
        texts = {name: _texts(path, name, arrays[name]) for name in several if is_text(arrays.get(name))}
        if len(texts) == 1 and "y_test" in arrays and "silo" not in texts:
            kinds = " and ".join(f"{name} {arrays[name].dtype}" for name in several)
            raise InputError(f"{path}: dtypes are {kinds}; make them alike")
        known = tuple(ordered({text for one in texts.values() for text in one}))
        number = {text: at for at, text in enumerate(known)}
        found |= {name: np.array([number[text] for text in one], np.int64) for name, one in texts.items()}
        names[several[0]] = known if texts else None
    return Named(found, names["y"], names["silo"])


def class_names(
    path: Path, own: tuple[str, ...] | None, given: str, classes: int | None
) -> tuple[str, ...] | None:
    """Return what the classes are called: by their own texts, or as the user says.

    Raises:
        InputError: there are fewer than so many classes, or they have texts already.
    """
    if own and given:
        raise InputError(f"--option: class_names={given} given; {path}: y holds their names, leave it out")
    least = classes or 0
    more = max(least, given.count(",") + 1) if least else None
    return own or _listed(path, "class_names", given, more, "y has {} classes")


def feature_names(path: Path, given: str, x: Any) -> tuple[str, ...] | None:
    """Return what the columns of x [n, d] are called; None where nobody says it.

    Raises:
        InputError: x has another shape, or another number of columns.
    """
    columns = x.shape[1] if len(x.shape) == 2 and not x.dtype.names else None
    return _listed(path, "feature_names", given, columns, "x has {} columns")


def silo_names(
    path: Path, silo: np.ndarray | None, own: tuple[str, ...] | None, given: str
) -> dict[int, str] | None:
    """Return what the numbers in `silo` are called, in their order."""
    if own and given:
        raise InputError(f"--option: silo_names={given} given; {path}: silo holds their names, leave it out")
    numbers = [] if silo is None else np.unique(silo).tolist()
    names = own or _listed(path, "silo_names", given, len(numbers) or None, "silo has {} different numbers")
    return dict(zip(numbers, names, strict=True)) if names else None


def is_text(array: Any) -> bool:
    """Tell whether an array holds texts."""
    return isinstance(array, np.ndarray) and array.dtype.kind in "US"


def _texts(path: Path, name: str, array: np.ndarray) -> list[str]:
    """Return the texts of an array [n], without blanks at their ends."""
    if array.ndim != 1:
        raise InputError(f"{path}: {name} has texts of shape {list(array.shape)}; it must be [examples]")
    texts = [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in array.tolist()]
    texts = [text.strip() for text in texts]
    if "" in texts:
        raise InputError(
            f"{path}: {name} is empty in example {texts.index('')}; name it, or leave the example out"
        )
    return texts


def _listed(path: Path, option: str, given: str, count: int | None, what: str) -> tuple[str, ...] | None:
    if not given:
        return None
    names = tuple(name.strip() for name in given.split(","))
    if len(names) != count or len(set(names)) != len(names) or not all(names):
        found = what.format(count or "no")
        raise InputError(f"--option: {option}={given} given; {path}: {found}: give each its own name")
    return names
