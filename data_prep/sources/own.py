"""The user's own source: a function, named `module:function`, that makes examples from a seed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Dataset, blamed
from data_prep.sources.aims import Wanted
from data_prep.sources.arrays import OPTIONS, dataset_of
from data_prep.sources.reading import Digests
from data_prep.sources.spool import UnevenSpool, evened
from data_prep.sources.text_names import TEXTS, is_text
from mpifl.common import InputError, load_plugin
from mpifl.data import Column, Ragged

COLUMNS = ("x", "y", "silo")
FORM = "it returns or yields (x, y) or (x, y, silo), arrays, or returns a dict of arrays as an npz file has"


def own_source(name: str, known: Iterable[str], options: Sequence[str]) -> Callable[..., Dataset]:
    """Return a reader (data, seed, *, options) of what a user's function (seed, **options) makes.

    Its options are the function's parameters, each of the type of its default, and text where it has none.
    Those that the function has not say what the arrays are, as of npz.
    """
    function = load_plugin(name, "SOURCE", known)
    parameters = _parameters(name, function)
    takes = [
        p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "data"
    ]
    defaults = {p.name: None if p.default is p.empty else p.default for p in parameters if p.name in takes}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        defaults = {word.partition("=")[0].strip().replace("-", "_"): None for word in options} | defaults
    wanted_data = [p for p in parameters if p.name == "data"]
    of_arrays = {key: usual for key, usual in OPTIONS.items() if key not in takes}

    def read(data: Path | None, seed: int, **given: Any) -> Dataset:
        said = {key: given.pop(key, usual) for key, usual in of_arrays.items()}
        wanted = Wanted(*{**OPTIONS, **said}.values())
        if data is not None and not wanted_data:
            raise InputError(f"--data: {data} given, but '{name}' has no parameter data; leave it out")
        files = Digests()
        if data is not None and data.exists():
            files.note_all(data)
        if wanted_data and (data is not None or wanted_data[0].default is inspect.Parameter.empty):
            given["data"] = data
        return _dataset(name, function, seed, given, wanted, files)

    read.own = tuple(takes)  # type: ignore[attr-defined]
    every = {**defaults, **of_arrays}.items()
    read.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=value) for key, value in every]
    )
    return read


def _parameters(name: str, function: Any) -> list[inspect.Parameter]:
    """Return a function's parameters after the first, which is the seed."""
    try:
        seed, *others = inspect.signature(function).parameters.values()
        if seed.kind in (seed.KEYWORD_ONLY, seed.VAR_KEYWORD):
            raise ValueError
    except (TypeError, ValueError):
        raise InputError(f"SOURCE: '{name}' is not a function of a seed; write def NAME(seed, ...)") from None
    return others


def _dataset(
    name: str, function: Any, seed: int, options: dict[str, Any], wanted: Wanted, files: Digests
) -> Dataset:
    """Make a data set of what a function returns; note its module in `files`, beside what it is given."""
    try:
        inspect.signature(function).bind(seed, **options)
    except TypeError as error:
        raise InputError(f"SOURCE: '{name}': {error}; give it as --option KEY=VALUE") from None
    with blamed(name):
        made = function(seed, **options)
        arrays = _arrays(name, made, wanted.beside)
    if file := getattr(sys.modules[name.partition(":")[0]], "__file__", None):
        files.note(Path(file))
    unread = map(str, made) if isinstance(made, Mapping) else ()
    return dataset_of(Path(name), arrays, files, wanted, unread=unread)


def _arrays(name: str, made: Any, beside: Sequence[str]) -> dict[str, Column]:
    """Return what a function made as the arrays of a file; those `beside` its examples, targets and
    silos may be texts, and others of texts are left out."""
    if isinstance(made, Mapping):
        texts = {str(key): np.asarray(value) for key, value in made.items() if key in beside}
        texts |= {key: one for key in TEXTS if key in made and is_text(one := np.asarray(made[key]))}
        read = {key: value for key, value in made.items() if str(key)[:1] == "x" or not _of_texts(value)}
        others = {str(key): value for key, value in read.items() if key not in texts}
        return texts | {key: evened(_array(name, key, value)) for key, value in others.items()}
    if isinstance(made, tuple) and not any(isinstance(part, tuple) for part in made):
        made = [made]
    if not isinstance(made, Iterable) or isinstance(made, (str, bytes, np.ndarray)):
        raise InputError(f"{name}: returned {type(made).__name__}; {FORM}")
    spools: dict[str, UnevenSpool] = {}
    for piece in _pieces(name, made):
        for column, array in piece.items():
            spools.setdefault(column, UnevenSpool()).append(array)
    if not spools:
        raise InputError(f"{name}: made no examples; {FORM}")
    return {column: spool.rows() for column, spool in spools.items()}


def _of_texts(value: Any) -> bool:
    return is_text(value) or (isinstance(value, list) and bool(value) and isinstance(value[0], str))


def _pieces(name: str, made: Iterable[Any]) -> Iterator[dict[str, Column]]:
    """Yield the arrays of every piece, checked to be like those of the first."""
    first: dict[str, Column] = {}
    for number, piece in enumerate(made):
        if not isinstance(piece, (tuple, list)) or len(piece) not in (2, 3):
            count = f" of {len(piece)}" if isinstance(piece, (tuple, list)) else ""
            raise InputError(f"{name}: piece {number} is {type(piece).__name__}{count}; {FORM}")
        arrays = {
            column: _array(name, f"{column} of piece {number}", part)
            for column, part in zip(COLUMNS, piece, strict=False)
        }
        first = first or {column: array[:0] for column, array in arrays.items()}
        _check_alike(name, number, arrays, first)
        yield arrays


def _array(name: str, what: str, value: Any) -> Column:
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            raise InputError(f"{name}: {what} has masked values; fill them, or leave their rows out")
    try:
        array = _uneven(value) if isinstance(value, list) else np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{name}: {what} is not an array ({str(error)[:80]}); {FORM}") from None
    if array.dtype.kind not in "biuf" or not array.ndim:
        found = f"{type(value).__name__} with dtype {array.dtype} and shape {list(array.shape)}"
        raise InputError(f"{name}: {what} is {found}; make it an array of numbers, a row for each example")
    return array


def _check_alike(name: str, number: int, arrays: Mapping[str, Column], first: Mapping[str, Column]) -> None:
    """Refuse a piece whose arrays differ in length, or in anything else from those of the first."""
    if list(arrays) != list(first):
        raise InputError(f"{name}: piece {number} has {', '.join(arrays)}, the first one {', '.join(first)}")
    for column, array in arrays.items():
        if len(array) != len(arrays["x"]):
            rows = f"{len(arrays['x'])} rows of x and {len(array)} of {column}"
            raise InputError(f"{name}: piece {number} has {rows}; give both the same number of rows")
        if _kind(array) != _kind(first[column]):
            has = f"{column} of {array.dtype} {list(array.shape[1:])}"
            others = f"the first one {first[column].dtype} {list(first[column].shape[1:])}"
            raise InputError(f"{name}: piece {number} has {has}, {others}; make them alike")


def _uneven(value: list[Any]) -> Column:
    """Return a list of arrays as examples of lengths of their own; another list as an array."""
    parts = [np.asarray(part) for part in value]
    if not parts or any(part.ndim == 0 or part.dtype.kind not in "biuf" for part in parts):
        return np.asarray(value)
    kinds = [part.dtype for part in parts if part.size]  # that of an empty list says nothing
    return Ragged.of(parts if not kinds else [part.astype(np.result_type(*kinds)) for part in parts])


def _kind(array: Column) -> tuple[Any, ...]:
    """Return what the arrays of all pieces have in common; lists of arrays need not have their lengths."""
    uneven = isinstance(array, Ragged)
    return array.dtype, array.shape[1 + uneven :], uneven
