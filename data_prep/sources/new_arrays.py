"""Arrays without labels from a .npz file, as a model's inputs have them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Beside, fields
from data_prep.sources.aims import PLAIN
from data_prep.sources.arrays import features_in
from data_prep.sources.npz import load_arrays
from data_prep.sources.ragged import joined
from data_prep.sources.standardising import in_deviations
from data_prep.tables import Afar
from mpifl.common import InputError
from mpifl.data import Array, Column, Features, Inputs, Ragged
from mpifl.data.shards import by_path

Seen = Mapping[int, tuple[str, float, float]]
TO_DO = "Give x in that of the training"
"""What to do where a column may have another unit."""


def unlabelled_arrays(
    path: Path,
    inputs: Inputs,
    record: Mapping[str, Any] | None = None,
    seen: Seen | None = None,
    *,
    force: bool = False,
) -> tuple[Array, list[str]]:
    """Return x, or every x_NAME by its name, of a .npz file, and what is to be told of them.

    Its other arrays are not looked at. Columns that lie far from the training are told where `record` has the
    training's statistics.

    Args:
        path: The file, as the source `npz` takes it.
        inputs: The format of an example of the training.
        record: The encoding of the training, by which columns are standardised if they were.
        seen: By place in x, the name, mean and deviation that a column had in the training, if the run knows.
        force: Take columns that are too far from the training.

    Raises:
        InputError: the file is damaged, its arrays are not such as those of the training, or a column is too
            far from it.
    """
    found = features_in(path, "x", joined(path, load_arrays(path, PLAIN), PLAIN), None)
    whole = found if isinstance(found, Ragged | Beside) else found[:]
    given, wanted = by_path("x", fields(whole)), by_path("x", inputs)
    if odd := sorted(given.keys() ^ wanted.keys()):
        where = "the training" if odd[0] in wanted else str(path)
        raise InputError(f"{path}: only {where} has {odd[0].replace('/', '_')}; name arrays as there")
    far: list[str] = []
    if record is not None and record["kind"] == "arrays":
        given["x"], said = _standardised(path, given["x"], record, force=force)
        far = [f"warning: {path}: {said}"] if said else []
    elif seen and (said := _far(path, given["x"], seen, force=force)):
        far = [f"warning: {path}: {said}"]
    made: dict[str, Any] = {name: _alike(path, name, given[name], one) for name, one in wanted.items()}
    if len({len(one) for one in made.values()}) > 1:
        told = ", ".join(f"{name.replace('/', '_')} {len(one)}" for name, one in made.items())
        raise InputError(f"{path}: has different numbers of examples: {told}; make them alike")
    return {name[2:]: one for name, one in made.items()} if isinstance(inputs, dict) else made["x"], far


def _far(path: Path, x: Any, seen: Seen, *, force: bool) -> str | None:
    """Return a line about columns [n, d] that lie far from the training; one of another shape is refused
    later."""
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.shape[1] <= max(seen):
        return None
    return far_columns(path, [x], seen, TO_DO, force=force)


def far_columns(
    path: Path, pieces: Iterable[np.ndarray], seen: Seen, to_do: str, *, force: bool = False
) -> str | None:
    """Return a line about columns that lie far from the training; None without one.

    Args:
        path: Where the rows are from.
        pieces: The columns [m, d] of some rows at a time.
        seen: By place in the columns, the name, mean and deviation that one had in the training.
        to_do: What to do where a column has another unit.
        force: Take columns that are too far from the training.

    Raises:
        InputError: a column is too far from the training.
    """
    afar = Afar({name: (mean, by) for name, mean, by in seen.values()}, to_do)
    begun = 0
    for x in pieces:
        for at, (name, *_) in seen.items():
            afar.look(name, x[:, at].astype(np.float64), functools.partial(_row, begun))
        begun += len(x)
    return afar.told(path, force=force)


def _row(begun: int, at: int) -> str:
    """Return where a row stands, by its number behind others."""
    return f"row {begun + at}"


def _standardised(
    path: Path, x: Any, record: Mapping[str, Any], *, force: bool
) -> tuple[np.ndarray, str | None]:
    """Return columns [n, d] in their deviations, by the training's statistics, and which lie far from it."""
    told = record.get("columns")
    columns = told if isinstance(told, dict) else {}
    known = [*columns.values()]
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.shape[1] != len(known):
        has = f"x of {list(x.shape[1:])}, the training has standardised {len(known)} columns"
        raise InputError(f"{path}: {has}; give the same columns")
    try:
        found = in_deviations(x, known).astype(x.dtype)
        afar = Afar({str(name): (mean, by) for name, (mean, by) in columns.items()}, TO_DO)
    except (ValueError, TypeError):
        raise InputError(f"{path}: the training's statistics are damaged; name shards by --data") from None
    for name, column in zip(columns, x.T, strict=True):
        afar.look(str(name), column.astype(np.float64), functools.partial(_row, 0))
    return found, afar.told(path, force=force)


def _alike(path: Path, name: str, rows: Any, wanted: Features) -> Column:
    """Return an array with the dtype and the padding of the training's; raise InputError if its examples have
    another shape, or another kind of numbers."""
    where, array = (
        f"{path}: {name.replace('/', '_')}",
        rows if isinstance(rows, Ragged) else np.asarray(rows[:]),
    )
    if isinstance(array, Ragged) != wanted.ragged:
        raise InputError(
            f"{where}: examples have one length either here or in the training, not in both; make them alike"
        )
    found, form = list(array.shape[1:]), list(wanted.shape)
    if found[wanted.ragged :] != form[wanted.ragged :] or (wanted.ragged and found[0] > form[0]):
        raise InputError(f"{where}: examples have shape {found}, the model takes {form}")
    if array.dtype.name != wanted.dtype and {array.dtype.kind, np.dtype(wanted.dtype).kind} != {"f"}:
        raise InputError(f"{where}: is {array.dtype.name}, the model learned from {wanted.dtype}; convert it")
    if isinstance(array, Ragged):
        return replace(array, longest=form[0], fill=wanted.fill, mask=wanted.mask)
    return array.astype(wanted.dtype, copy=False)
