"""The format of one example's target, and checks of arrays against it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from mpifl.common import ShardError
from mpifl.data.features import ArrayForm, Classes, Inputs, Shape, check_features, check_ragged
from mpifl.data.ragged_arrays import Column, Ragged, flat
from mpifl.data.shards import NAMED, ONE, Name, Record, Texts, by_path, few_arrays, one_or_named

PIECE = 1 << 22
"""Numbers that are checked at a time."""
_FIX = "correct the data and partition again"


class Targets(Record):
    """The format of one example's target: its stored dtype and its shape. Without it, targets are int64 class
    numbers.

    In a federation with classes, targets are class numbers, which a model receives as int64. Otherwise they
    are values, which a model receives as float32: measurements, counts, or 0 and 1 for each of several
    labels.
    """

    dtype: Literal["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"]
    shape: Shape
    names: Texts | None = None
    """The names of the columns in the last dimension."""
    ignore: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    """A class number that does not count."""
    classes: Classes | None = None
    """The number of classes, if this is one of several targets and holds class numbers."""
    ragged: bool = False
    """Whether examples have unequal lengths; then the first number of the shape is the largest number of
    rows."""

    @model_serializer(mode="wrap")
    def _of_one_array(self, make: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out `classes` if it is None (a single array's are in the federation), and `ragged` if it is
        false."""
        of_others = {"classes": self.classes is None, "ragged": not self.ragged}
        return {key: value for key, value in make(self).items() if not of_others.get(key)}

    @property
    def padding(self) -> float:
        """Return the value that pads a ragged example in a batch, and does not count."""
        return math.nan if self.ignore is None else self.ignore

    @property
    def stored(self) -> np.dtype[Any]:
        """Return the dtype in a shard, since HDF5 has no bool of its own."""
        return np.dtype("uint8" if self.dtype == "bool" else self.dtype)

    @model_validator(mode="after")
    def _columns_have_names(self) -> Targets:
        columns = self.shape[-1] if self.shape else 1
        if self.names is not None and (len(self.names) != columns or len(set(self.names)) != columns):
            raise ValueError(f"{len(set(self.names))} different names for {columns} columns of targets")
        if self.ragged and (not self.shape or (self.names is not None and len(self.shape) == 1)):
            raise ValueError("ragged targets have the shape [most rows, ...], and names of columns behind it")
        return self


Aims = Annotated[
    Annotated[Targets, Tag(ONE)] | Annotated[dict[Name, Targets], BeforeValidator(few_arrays), Tag(NAMED)],
    Discriminator(one_or_named),
]
"""The format of one example's targets: an array, or several by name."""


def aims_by_path(classes: int | None, targets: Aims | None) -> dict[str, tuple[int | None, Targets | None]]:
    """Return the number of classes and the format of each array of targets, by its path in a split."""
    if isinstance(targets, dict):
        return {path: (one.classes, one) for path, one in by_path("y", targets).items()}
    return {"y": (classes, targets)}


def told(classes: int | None, targets: Aims | None) -> str:
    """Return the description of a federation's targets in messages."""
    if isinstance(targets, dict):
        return "; ".join(f"{name}: {told(one.classes, one)}" for name, one in targets.items())
    if targets is None:
        return "int64 class numbers"
    kind = "values" if classes is None else "class numbers"
    names = f" ({', '.join(targets.names)})" if targets.names else ""
    ignored = "" if targets.ignore is None else f", {targets.ignore} ignored"
    ragged = ", ragged" if targets.ragged else ""
    return f"{targets.dtype} {kind} of shape {list(targets.shape)}{names}{ignored}{ragged}"


def check_kind(classes: int | None, targets: Aims | None) -> None:
    """Refuse classes and targets that do not fit each other; raise ValueError."""
    if isinstance(targets, dict):
        if classes is not None:
            raise ValueError(f"{classes} classes of named targets; say them of each in targets")
        for name, one in targets.items():
            _check_kind(f"{name}: ", one.classes, one)
    elif targets is not None:
        if targets.classes is not None:
            raise ValueError("classes within targets; they stand beside, where there is one array")
        _check_kind("", classes, targets)
    elif classes is None:
        raise ValueError("neither classes nor targets; one of them says what is learned")


def _check_kind(name: str, classes: int | None, targets: Targets) -> None:
    if classes is not None and targets.stored.kind == "f":
        raise ValueError(f"{name}{classes} classes of {targets.dtype} targets; class numbers are integers")
    if classes is not None and targets.dtype == "bool":
        raise ValueError(f"{name}{classes} classes of bool targets; these are values, with classes null")
    if classes is not None and targets.ragged and targets.ignore is None:
        raise ValueError(f"{name}ragged class numbers without ignore; they are padded with it, as with -100")
    if (ignore := targets.ignore) is None:
        return
    if classes is None or 0 <= ignore < classes:
        of = f"of {classes or 'no'} classes"
        raise ValueError(f"{name}ignore {ignore} {of}; it is a number that no class has")
    limits = np.iinfo(targets.stored)
    if not limits.min <= ignore <= limits.max:
        raise ValueError(f"{name}ignore {ignore} does not fit {targets.dtype} targets")


def check_target_form(where: str, y: ArrayForm, classes: int | None, targets: Targets | None) -> None:
    """Refuse targets whose shape or dtype differs from the federation's."""
    check_ragged(where, y, targets is not None and targets.ragged)
    if targets is None:
        if y.dtype.kind not in "iu":
            takes = f"they must be integers from 0 to {(classes or 1) - 1}"
            raise ShardError(f"{where}: labels of dtype {y.dtype.name}; {takes}")
        return
    if y.dtype.name not in (targets.dtype, targets.stored.name):
        has = f"the federation has {targets.dtype}; partition again"
        raise ShardError(f"{where}: targets of dtype {y.dtype.name}, {has}")
    if tuple(y.shape[1:]) != targets.shape:
        has = f"the federation has {list(targets.shape)}; partition again"
        raise ShardError(f"{where}: targets of shape {list(y.shape[1:])}, {has}")


def check_picked(where: str, y: ArrayForm, targets: Targets | None) -> None:
    """Refuse stored class numbers of a dtype that torch cannot index."""
    if targets is None and y.dtype.name in ("uint16", "uint32", "uint64"):
        raise ShardError(f"{where}: labels of dtype {y.dtype.name}; store them as int64, or partition again")


def check_counts(
    where: str, y: ArrayForm, examples: Mapping[str, int], labels: Sequence[int], *, most: bool
) -> None:
    """Refuse targets if the number for each example does not fit the histogram `labels`.

    With `most`, the histogram may leave out some targets. Ragged targets cannot be checked beforehand.
    """
    if getattr(y, "ragged", False):
        return
    counted = examples.get("train", next(iter(examples.values()), 0))
    there, said = math.prod(y.shape) * counted, sum(labels) * y.shape[0]
    if there < said or (there > said and not most):
        counts = f"federation.json counts {sum(labels)} of {counted} examples"
        raise ShardError(f"{where}: labels of shape {list(y.shape)}, {counts}; partition again or restore it")


def check_labels(where: str, y: Column, classes: int | None, targets: Targets | None = None) -> None:
    """Refuse class numbers out of range, values that are not finite, and bools that are neither 0 nor 1."""
    if classes is not None:
        _check_classes(where, y, classes, None if targets is None else targets.ignore)
    elif y.dtype.kind == "f":
        _check_finite(where, y)
    elif targets is not None and targets.dtype == "bool" and _most(y) > 1:
        row = _first(y, lambda piece: piece > 1)
        raise ShardError(f"{where}: target is {y[row].max()} in row {row}, bool targets are 0 or 1; {_FIX}")


def _most(y: Column) -> int:
    values = flat(y)
    return int(values.max()) if values.size else 0


def _check_classes(where: str, y: Column, classes: int, ignore: int | None) -> None:
    values = flat(y)
    if not values.size or 0 <= int(values.min()) <= int(values.max()) < classes:
        return
    takes = f"{classes} classes take 0 to {classes - 1}"
    row = _first(y, lambda piece: (piece != ignore) & ((piece < 0) | (piece >= classes)))
    if row is not None and ignore is None:
        raise ShardError(
            f"{where}: labels from {values.min()} to {values.max()}; {takes}, and row {row} others; {_FIX}"
        )
    if row is not None:
        takes = f"{takes}, and {ignore} is ignored"
        raise ShardError(f"{where}: a label out of range in row {row}; {takes}; {_FIX}")


def _check_finite(where: str, y: Column) -> None:
    if (row := _first(y, lambda piece: ~np.isfinite(piece))) is not None:
        what = "NaN" if np.isnan(y[row]).any() else "infinite"
        raise ShardError(f"{where}: target is {what} in row {row}; {_FIX}")


def _first(y: Column, wrong: Any) -> int | None:
    """Return the first wrong row, for ragged targets the first wrong example; None if there is none."""
    if isinstance(y, Ragged):
        found_in = _first(y.joined, wrong)
        return None if found_in is None else y.example_at(found_in)
    for start, piece in pieces(y):
        if (found := wrong(piece)).any():
            return start + int(np.argwhere(found)[0, 0])
    return None


def pieces(y: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the rows of an array [n, ...] in pieces, each with the position of its first row."""
    step = max(1, PIECE // max(1, math.prod(y.shape[1:])))
    for start in range(0, len(y), step):
        yield start, y[start : start + step]


def label_counts(y: Column | None, classes: int | None, targets: Aims | None = None) -> list[int]:
    """Return the number of targets of each class, without ignored ones; empty for values and for named
    targets."""
    if classes is None or y is None:
        return []
    total, ignore = np.zeros(classes, np.int64), targets.ignore if isinstance(targets, Targets) else None
    for _, piece in pieces(flat(y)):
        labels = piece.reshape(-1).astype(np.int64, copy=False)
        total += np.bincount(labels if ignore is None else labels[labels != ignore], minlength=classes)
    return [int(count) for count in total]


Array = Column | dict[str, Column]
"""An array, or several by name."""


def check_arrays(
    where: str, x: Array, y: Array, features: Inputs, classes: int | None, targets: Aims | None = None
) -> None:
    """Refuse arrays whose shapes, dtypes or targets do not fit the federation."""
    check_forms(where, by_path("x", x), by_path("y", y), features, classes, targets)
    for path, (count, one) in aims_by_path(classes, targets).items():
        check_labels(place(where, path), by_path("y", y)[path], count, one)


def check_forms(
    where: str,
    x: Mapping[str, ArrayForm],
    y: Mapping[str, ArrayForm],
    features: Inputs,
    classes: int | None,
    targets: Aims | None = None,
) -> None:
    """Refuse forms whose shapes or dtypes do not fit the federation; x and y are given by their paths in a
    split."""
    inputs, aims = by_path("x", features), aims_by_path(classes, targets)
    if odd := sorted({*x, *y} ^ {*inputs, *aims}):
        raise ShardError(f"{where}: {odd[0]} is there or in the federation, not in both; partition again")
    for path, form in x.items():
        check_features(place(where, path), form, inputs[path])
    rows = next(iter(x.values())).shape[0]
    for path, form in (*x.items(), *y.items()):
        if form.shape[0] != rows:
            what = "labels" if path[0] == "y" else "features"
            found = f"{rows} features and {form.shape[0]} {what}"
            raise ShardError(f"{place(where, path)}: {found}; they must be as many")
    for path, form in y.items():
        check_target_form(place(where, path), form, *aims[path])


def place(where: str, path: str) -> str:
    """Return the beginning of a message about an array; a single array has no name."""
    return f"{where}: {path}" if "/" in path else where
