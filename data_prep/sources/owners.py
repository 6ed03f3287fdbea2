"""A user's own arrays of groups, order and ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Groups, Order, renumbered
from data_prep.sources.aims import Wanted
from mpifl.common import InputError, did_you_mean
from mpifl.data.shards import Provenance, ids_of


def check_named(names: Iterable[str], wanted: Wanted) -> None:
    """Refuse an array that is asked for and not among those of these names."""
    for option, name in (("group", wanted.group), ("order", wanted.order), ("option id", wanted.id)):
        if name and name not in (there := sorted(names)):
            told = f"{did_you_mean(name, there)}there are {', '.join(there)[:200]}"
            raise InputError(f"--{option}: there is no array '{name}'; {told}")


def groups_of(
    path: Path, arrays: Mapping[str, Any], wanted: Wanted, length: int, tested: int
) -> Groups | None:
    """Return whose each of `length` examples is, by the array that is asked for; None where none is.

    The `tested` ones of the server have an array of its name and `_test`.

    Raises:
        InputError: it is not one number or text for each example, or lacks one.
    """
    if not (name := wanted.group):
        return None
    of_server = arrays.get(f"{name}_test")
    parts = [_ids(path, name, arrays[name], length)]
    parts += [] if of_server is None else [_ids(path, f"{name}_test", of_server, tested)]
    if len({part.dtype.kind in "iu" for part in parts}) > 1:
        told = f"{name} has {parts[0].dtype}, {name}_test {parts[1].dtype}"
        raise InputError(f"{path}: {told}; make them alike")
    of, *of_test = renumbered(parts)
    return Groups(name, of, of_test[0] if of_test else None)


def provenance(path: Path, arrays: Mapping[str, Any], name: str, length: int, tested: int) -> dict[str, Any]:
    """Return what a data set says of the ids of `length` examples, by the array of a name if there is one.

    The `tested` ones of the server have an array of its name and `_test`.

    Raises:
        InputError: it is not one number or text for each example.
    """
    if not name:
        return {}
    own, of_test = (
        _ids_by(path, arrays, key, count) for key, count in ((name, length), (f"{name}_test", tested))
    )
    return {"given": own, "given_of_test": of_test, "ids_asked": True}


def _ids_by(path: Path, arrays: Mapping[str, Any], name: str, length: int) -> Provenance | None:
    if name not in arrays:
        return None
    array = np.asarray(arrays[name])
    _check_form(path, name, array, length, "iuUSO", "whole numbers or texts")
    return Provenance(ids=ids_of(map(_text, array.tolist())))


def order_of(path: Path, arrays: Mapping[str, Any], wanted: Wanted, length: int) -> Order | None:
    """Return when each of `length` examples was, by the array that is asked for; None where none is.

    Raises:
        InputError: it is not one finite number for each example.
    """
    if not (name := wanted.order):
        return None
    array = np.asarray(arrays[name])
    _check_form(path, name, array, length, "iufM", "numbers or dates")
    if array.dtype.kind == "M":
        gaps, array = np.isnat(array), array.astype("datetime64[us]").astype(np.int64)
    else:
        gaps = ~np.isfinite(array.astype(np.float64))
    _check_gaps(path, name, "the order", gaps)
    return Order(name, array.astype(np.float64))


def _ids(path: Path, name: str, array: Any, length: int) -> np.ndarray:
    """Return an array of ids as whole numbers or texts."""
    array = np.asarray(array)
    _check_form(path, name, array, length, "iufbUSO", "whole numbers or texts")
    if array.dtype.kind in "SO":
        array = np.array([_text(one) for one in array.tolist()], np.str_)
    if array.dtype.kind == "U":
        array = np.char.strip(array)
        _check_gaps(path, name, "the group", array == "")
    elif array.dtype.kind == "f":
        _check_gaps(path, name, "the group", ~np.isfinite(array))
        if (array != np.rint(array)).any():
            row = int(np.argmax(array != np.rint(array)))
            raise InputError(
                f"{path}: {name} is {array[row]:g} in example {row}; groups are whole numbers or texts"
            )
    return np.asarray(array if array.dtype.kind == "U" else array.astype(np.int64))


def _text(value: Any) -> str:
    """Return an object as a text; "" is none."""
    if value is None or value != value:  # NaN is what pandas has for none
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _check_form(path: Path, name: str, array: np.ndarray, length: int, kinds: str, told: str) -> None:
    if array.dtype.kind not in kinds or array.ndim != 1 or len(array) != length:
        found = f"{name} has dtype {array.dtype} {list(array.shape)}"
        raise InputError(f"{path}: {found}; it must be {told}, [{length}], one for each example")


def _check_gaps(path: Path, name: str, what: str, gaps: np.ndarray) -> None:
    if gaps.any():
        row = f"example {int(np.argmax(gaps))}"
        raise InputError(f"{path}: {name}, {what}, is missing in {row}; fill it in or leave the example out")
