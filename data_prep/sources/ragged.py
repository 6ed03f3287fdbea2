"""A user's own arrays of examples of unequal lengths: the rows of all, and their offsets beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Beside, all_seen, unseen
from data_prep.sources.aims import Wanted
from data_prep.sources.reading import unseeable
from mpifl.common import InputError, ShardError, suggested
from mpifl.data import OFFSETS, Ragged, ragged_of

PIECE = 1 << 22
"""Numbers that are looked at together."""


def joined(path: Path, arrays: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    """Return arrays by their names, those with offsets as ragged ones; `x_test` is padded as `x` is.

    Raises:
        InputError: offsets are none of their array, or the user says something of no ragged array.
    """
    ragged = {name: _ragged(path, name, arrays) for name in arrays if name + OFFSETS in arrays}
    ragged |= {name: one for name, one in arrays.items() if isinstance(one, Ragged)}
    longest: dict[str, int] = {}
    for name, one in ragged.items():
        longest[_own(name)] = max(longest.get(_own(name), 1), one.longest)
    inputs = list(dict.fromkeys(_own(name) for name in ragged if name[0] == "x"))
    fills = {name: _number(text) for name, text in _said("fill", wanted.fill, inputs).items()}
    masks = _said("mask", wanted.mask, inputs)
    if "x" in masks:
        raise InputError(f"--option: mask={wanted.mask} given; a masked array has a name: call it x_NAME")
    if wanted.mask and len(inputs) > 1 and ":" not in wanted.mask:
        given = f"mask={wanted.mask} given of {len(inputs)} arrays"
        raise InputError(f"--option: {given}; say of which, as {inputs[0][2:]}:{wanted.mask}")
    found = {name: one for name, one in arrays.items() if not name.endswith(OFFSETS)}
    for name, one in ragged.items():
        own = _own(name)
        found[name] = replace(one, longest=longest[own], fill=fills.get(own, 0), mask=masks.get(own))
    return found


def check_finite(path: Path, name: str, x: Ragged, scale: float | None) -> None:
    """Refuse NaN, infinite values, and those that float32 cannot hold."""
    rows = x.joined if x.dtype.kind == "f" else x.values[:0]
    step = max(1, PIECE // max(1, rows[:1].size))
    for start in range(0, len(rows), step):
        if not all_seen(piece := rows[start : start + step], scale):
            first = np.argwhere(unseen(piece, scale))[0]
            example = x.example_at(start + int(first[0]))
            raise unseeable(f"{path}: {name}", piece[tuple(first)], example)


def form_of(rows: Any) -> Any:
    """Return what two arrays must have in common to be of the same kind."""
    if isinstance(rows, Beside):
        return {name: form_of(one) for name, one in rows.arrays.items()}
    return rows.shape[1:], rows.dtype, isinstance(rows, Ragged)


def _own(name: str) -> str:
    """Return what an array is called whose server's test set this one may be."""
    return name.replace("_test", "", 1)


def _ragged(path: Path, name: str, arrays: Mapping[str, Any]) -> Ragged:
    values, offsets = (
        one if isinstance(one, np.ndarray) else one[:] for one in (arrays[name], arrays[name + OFFSETS])
    )
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or not len(offsets):
        found = f"{offsets.dtype.name} of shape {list(offsets.shape)}"
        raise InputError(f"{path}: {name}{OFFSETS} is {found}; it must be integers, [examples + 1]")
    if not values.ndim:
        raise InputError(f"{path}: {name} has shape []; it must be [rows of all examples, ...]")
    offsets = np.asarray(offsets).astype(np.int64)
    most = max(1, int(np.diff(offsets).max(initial=0)))
    try:
        return ragged_of(f"{path}: {name}", values, offsets, most)
    except ShardError as error:
        raise InputError(str(error).rpartition("; ")[0] + "; correct the offsets") from None


def _said(option: str, given: str, inputs: list[str]) -> dict[str, str]:
    """Return what is said of each ragged input: `TEXT` of all, or `NAME:TEXT,NAME:TEXT`."""
    if not given:
        return {}
    if not inputs:
        raise InputError(f"--option: {option}={given} given; no input has offsets, so leave it out")
    if ":" not in given:
        return dict.fromkeys(inputs, given)
    words = dict(word.strip().split(":", 1) for word in given.split(",") if ":" in word)
    if unknown := [name for name in words if f"x_{name}" not in inputs]:
        there = ", ".join(name[2:] for name in inputs) or "one without a name"
        hint = suggested(unknown[0], [name[2:] for name in inputs])
        what = f"'{unknown[0]}' is not a ragged input: there is {there}"
        raise InputError(f"--option: {option}={given} given; {what}{hint}")
    return {f"x_{name}": text for name, text in words.items()}


def _number(text: str) -> float:
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        raise InputError(f"--option: fill={text} given; it must be a number") from None
