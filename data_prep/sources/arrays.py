"""Checks of a user's own arrays: x, y, and optionally x_test,
y_test, silo and held_out, from whatever file they come."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import LARGEST, Beside, Converted, Dataset, Rows, together
from data_prep.sources.aims import PLAIN, Wanted, aim_of, integers
from data_prep.sources.owners import check_named, groups_of, order_of, provenance
from data_prep.sources.ragged import check_finite, form_of, joined
from data_prep.sources.reading import finite
from data_prep.sources.scaling import scale_of
from data_prep.sources.standardising import WAYS, StandardisedRows, Standardising
from data_prep.sources.taking import taken
from data_prep.sources.text_names import class_names, feature_names, numbered, silo_names
from mpifl.common import InputError, choices
from mpifl.data import FEATURE_DTYPES, OFFSETS, Array, Column, Ragged

ARRAYS = ("x", "y", "x_test", "y_test", "silo", "held_out")
SEVERAL = re.compile(r"([xy](?:_test)?)_([A-Za-z_][A-Za-z0-9_]{0,31})")
"""What one of several arrays is called: x_NAME, x_test_NAME, and y likewise."""


NAMES = (
    *("targets", "target_names", "ignore", "silo_names", "scale", "fill", "mask", "group", "order"),
    *("class_names", "feature_names", "id", "standardise"),
)
OPTIONS = dict(zip(NAMES, PLAIN, strict=True))
"""The options of a source of arrays: what users call the fields of `Wanted`, and the defaults."""
WIDENED = {"uint16": "int32"}
"""What features become whose dtype shards have not."""


def with_options(read: Callable[..., Dataset]) -> Callable[..., Dataset]:
    """Make a source of a function of a path and what the user says: its options stand in its signature,
    beside those that the function takes by keyword."""

    @functools.wraps(read)
    def source(data: Path | None, seed: int, **given: Any) -> Dataset:
        said = {name: given.pop(name, usual) for name, usual in OPTIONS.items()}
        return read(data, Wanted(*said.values()), **given)

    kinds, (path, _, *own) = inspect.Parameter, inspect.signature(read).parameters.values()
    options = [kinds(name, kinds.KEYWORD_ONLY, default=usual) for name, usual in OPTIONS.items()]
    taken = [path, kinds("seed", kinds.POSITIONAL_OR_KEYWORD), *own, *options]
    source.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    return source


def dataset_of(
    path: Path,
    arrays: Mapping[str, Any],
    files: Mapping[str, str],
    wanted: Wanted = PLAIN,
    *,
    unread: Iterable[str] = (),
) -> Dataset:
    """Make a data set of the arrays of a file or folder, checked; x and x_test may be Rows, not read here.

    Features keep their dtype; the number of classes is the largest label + 1.

    Args:
        path: The file or folder, as messages name it.
        arrays: By their names in `ARRAYS`.
        files: The sha256 of every file read.
        wanted: What the user says of them.
        unread: The names of arrays that the file has, too.

    Raises:
        InputError: an array is missing, of the wrong shape or dtype, or they do not fit each other.
    """
    made = _dataset_of(path, arrays, files, wanted)
    return replace(made, done=taken(arrays, made.x, made.y, wanted, {*unread} - {*arrays}))


def _dataset_of(path: Path, arrays: Mapping[str, Any], files: Mapping[str, str], wanted: Wanted) -> Dataset:
    """Make a data set, of which nothing is told."""
    check_named(arrays, wanted)
    texts = numbered(path, {name: arrays[name] for name in _plain(arrays, wanted)})
    given, arrays, scale = arrays, joined(path, texts.arrays, wanted), scale_of(wanted.scale)
    x, y = features_in(path, "x", arrays, scale), _targets(path, "y", arrays)
    _check_scaled(x, wanted)
    _check_lengths(path, arrays)
    test = _test_set(path, arrays, x, scale) if any(map(_of_server, arrays)) else None
    silo = integers(path, "silo", arrays["silo"], x.shape[0]) if "silo" in arrays else None
    aim = aim_of(path, y, test and test[1], wanted)
    names = class_names(path, texts.classes, wanted.class_names, aim.classes)
    made = Dataset(
        str(path),
        x,
        aim.fitted(y),
        len(names) if names else aim.classes,
        files,
        scale=scale,
        test=test and (test[0], aim.fitted(test[1])),
        silo=silo,
        silo_names=silo_names(path, silo, texts.silos, wanted.silo_names),
        class_names=names,
        feature_names=feature_names(path, wanted.feature_names, x),
        held=_held(path, arrays.get("held_out"), x.shape[0]),
        targets=aim.targets,
        groups=groups_of(path, given, wanted, x.shape[0], test[0].shape[0] if test else 0),
        order=order_of(path, given, wanted, x.shape[0]),
        **provenance(path, given, wanted.id, x.shape[0], test[0].shape[0] if test else 0),
    )
    return _standardised(path, made, wanted)


def _plain(names: Iterable[str], wanted: Wanted) -> list[str]:
    """Return the names of arrays other than those of groups, order and ids."""
    return [name for name in names if name in ARRAYS or name not in wanted.beside]


def _test_set(
    path: Path, arrays: Mapping[str, Any], x: Rows | Ragged | Beside, scale: float | None
) -> tuple[Rows | Ragged | Beside, Array]:
    """Return the server's test set, which must be like `x`."""
    test = features_in(path, "x_test", arrays, scale), _targets(path, "y_test", arrays)
    if not test[0].shape[0]:
        raise InputError(f"{path}: x_test is empty; leave it out")
    if form_of(test[0]) != form_of(x):
        found = f"{test[0].dtype} {list(test[0].shape[1:])} an example, x has {x.dtype} {list(x.shape[1:])}"
        raise InputError(f"{path}: x_test has {found}; make them alike")
    return test


def chosen(names: Iterable[str], wanted: Wanted = PLAIN) -> list[str]:
    """Return those of a file's arrays that are read: x, or where there is none every x_NAME; y likewise;
    and those that the user names."""
    there = set(names)
    check_named(there, wanted)
    beside = [name for name in dict.fromkeys(wanted.beside) if name in there]
    there -= set(beside)
    others = sorted(name for name in there.difference(ARRAYS) if SEVERAL.fullmatch(name))
    read = [*(name for name in ARRAYS if name in there), *(name for name in others if name[0] not in there)]
    return [*beside, *read, *(name + OFFSETS for name in read if name[0] in "xy" and name + OFFSETS in there)]


def _several(arrays: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the arrays x_NAME by their NAME, for x; x_test_NAME for x_test."""
    parts = {whole: SEVERAL.fullmatch(whole) for whole in arrays if whole not in ARRAYS}
    return {part[2]: arrays[whole] for whole, part in parts.items() if part and part[1] == name}


def _of_server(name: str) -> bool:
    return name[1:] == "_test" or name[1:].startswith("_test_")


def _check_lengths(path: Path, arrays: Mapping[str, Any]) -> None:
    """See that there is an entry of every array for every example."""
    for server in (False, True):
        own = [name for name in arrays if name != "silo" and _of_server(name) == server]
        for name in own:
            length = arrays[own[0]].shape[0]
            if arrays[name].shape[:1] != (length,):
                found = f"{name} has shape {list(arrays[name].shape)}; there are {length} examples"
                raise InputError(f"{path}: {found}, so [{length}, ...]")


def features_in(
    path: Path, name: str, arrays: Mapping[str, Any], scale: float | None
) -> Rows | Ragged | Beside:
    """Return x, or all x_NAME beside each other, checked.

    Raises:
        InputError: there is none, or one is no array of features.
    """
    if name in arrays:
        return _checked(path, name, arrays[name], 2, scale)
    if several := _several(arrays, name):
        return together({key: _checked(path, f"{name}_{key}", x, 1) for key, x in several.items()})
    raise InputError(f"{path}: has no array '{name}'; add {name} and y{name[1:]}")


def _targets(path: Path, name: str, arrays: Mapping[str, Any]) -> Array:
    found: Column | None = arrays.get(name)
    if found is not None:
        return found
    if several := _several(arrays, name):
        return several
    raise InputError(f"{path}: has no array '{name}'; add x{name[1:]} and {name}")


def _checked(
    path: Path, name: str, x: Rows | Ragged, least: int, scale: float | None = None
) -> Rows | Ragged:
    """Return features of at least so many dimensions; those alone are [examples, features, ...].

    Integers of 16 bits without a sign become int32, which holds them: shards have no such dtype."""
    if x.dtype.name in WIDENED:
        wider = np.dtype(WIDENED[x.dtype.name])
        x = x.astype(wider) if isinstance(x, Ragged) else Converted(x, wider)
    if x.dtype.name not in FEATURE_DTYPES:
        raise InputError(
            f"{path}: {name} has dtype {x.dtype.name}; convert it to one of {', '.join(FEATURE_DTYPES)}"
        )
    if len(x.shape) < least or 0 in x.shape[1:]:
        raise InputError(f"{path}: {name} has shape {list(x.shape)}; it must be [examples, features, ...]")
    if isinstance(x, Ragged):
        check_finite(path, name, x, scale)
        return x
    if scale and x.dtype.kind in "iu" and 2.0 ** (8 * x.dtype.itemsize) * scale > LARGEST:
        raise InputError(f"--option: scale={scale:g} given; {x.dtype} times this may be beyond float32")
    return finite(x, f"{path}: {name}", scale)


def _held(path: Path, held: np.ndarray | None, length: int) -> np.ndarray | None:
    """Return whether each example is for its silo's test split, bools [n], if the file says so."""
    if held is None:
        return None
    stored = held.view(np.uint8) if held.dtype.kind == "b" else held  # a file may have bools that are neither
    integers(path, "held_out", stored, length)
    if not (known := (stored == 0) | (stored == 1)).all():
        row = int(np.argmin(known))
        raise InputError(f"{path}: held_out is {stored[row]} in example {row}; it must be 0 or 1")
    return np.asarray(stored == 1)


def _standardised(path: Path, data: Dataset, wanted: Wanted) -> Dataset:
    """Return data whose columns of x [n, d] are standardised once it is known which rows train, if asked."""
    if not wanted.standardise:
        return data
    said, x = f"--option: standardise={wanted.standardise} given", data.x
    if wanted.standardise not in WAYS:
        raise InputError(f"{said}; {choices(wanted.standardise, WAYS, 'it must be')}")
    if isinstance(x, Ragged | Beside) or x.dtype.kind != "f" or len(x.shape) != 2:
        kind = f"x has {x.dtype} {list(x.shape[1:])} an example"
        raise InputError(f"{said}; {path}: {kind}, and only columns of floats [n, d] are standardised")
    names = data.feature_names or [str(at) for at in range(x.shape[1])]
    scaling = Standardising(wanted.standardise, dict(enumerate(names)), x.dtype)
    test: Any = data.test and (StandardisedRows(data.test[0], scaling), data.test[1])
    return replace(data, x=scaling.training(x), test=test, scaling=scaling)


def _check_scaled(x: Rows | Ragged | Beside, wanted: Wanted) -> None:
    """Refuse one scale for several arrays."""
    if wanted.scale and x.dtype.names:
        named = f"x is named arrays ({', '.join(x.dtype.names)})"
        raise InputError(f"--option: scale={wanted.scale} given; {named}, store them as floats in their unit")
