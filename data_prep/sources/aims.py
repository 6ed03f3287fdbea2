"""What a user's own array of targets is: class numbers, values, or 0 and 1 for each of several labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from data_prep.dataset import Beside, all_seen, unseen
from data_prep.sources.told_apart import check_told_apart
from mpifl.common import InputError, did_you_mean
from mpifl.data import FEATURE_DTYPES, Aims, Array, Column, Ragged, Targets, check_kind, flat

TARGETS = ("classes", "values", "labels")
# classes are counted one by one: a stray identifier among them would fill the memory
MOST_CLASSES = 1 << 20
SIGNED = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}
"""What integers become that torch has not, or shards have not."""


class Wanted(NamedTuple):
    """What the user says of the arrays, as options of a source.

    Attributes:
        kind: One of `TARGETS`; by default classes for integers, labels for bools, values for floats.
        names: What the columns of the targets are called, as `systolic,diastolic`.
        ignore: A class number that does not count.
        silo_names: What the silos are called, in the order of their numbers, as `north,south`.
        scale: What a model multiplies features by, as `1/255`.
        fill: What stands behind the last row of a ragged array in a batch, as `0`, or `input_ids:0,bag:-1`.
        mask: What a model calls its mask, as `attention_mask`, or `input_ids:attention_mask`.
        group: The array that says whose each example is.
        order: The array by which the last examples can be held out.
        class_names: What the classes are called, in the order of their numbers, as `healthy,ill`.
        feature_names: What the columns of x [n, d] are called, in their order, as `age,sex`.
        id: The array that has the id of each example.
        standardise: By which rows the columns of x [n, d] are standardised: own or train.
    """

    kind: str = ""
    names: str = ""
    ignore: str | None = None
    silo_names: str = ""
    scale: str = ""
    fill: str = ""
    mask: str = ""
    group: str = ""
    order: str = ""
    class_names: str = ""
    feature_names: str = ""
    id: str = ""
    standardise: str = ""

    @property
    def beside(self) -> tuple[str, ...]:
        """Return the arrays that it names, which are neither inputs nor targets."""
        named = [one for name in (self.group, self.id) if name for one in (name, f"{name}_test")]
        return (*named, self.order) if self.order else tuple(named)

    def of(self, name: str) -> Wanted:
        """Return what is said of one of several arrays; the kind may be `time:values,event:labels`."""
        said = dict(word.strip().split(":", 1) for word in self.kind.split(",") if ":" in word)
        return self._replace(kind=said.get(name, "") if said else self.kind)


PLAIN = Wanted()
"""Nothing said."""


@dataclass(frozen=True)
class Aim:
    """What targets are, as a data set has them."""

    classes: int | None
    targets: Aims | None

    def fitted(self, y: Array) -> Any:
        """Return targets as the data set has them: in their dtype, several as fields of one array."""
        if isinstance(y, dict):
            assert isinstance(self.targets, dict)
            if any(isinstance(array, Ragged) for array in y.values()):
                return Beside(
                    {name: y[name].astype(one.dtype, copy=False) for name, one in self.targets.items()}
                )
            kinds = [(name, one.dtype, one.shape) for name, one in self.targets.items()]
            together = np.empty(len(next(iter(y.values()))), np.dtype(kinds))
            for name, array in y.items():
                together[name] = array
            return together
        return y.astype(self.targets.dtype if isinstance(self.targets, Targets) else np.int64, copy=False)


def aim_of(path: Path, y: Array, test: Array | None, wanted: Wanted) -> Aim:
    """Find out what targets are; `test` are the server's, which must be alike.

    Raises:
        InputError: they are not what is wanted, or nothing that a federation can have.
    """
    if isinstance(y, dict):
        found = _aim_of_several(path, y, test, wanted)
    else:
        found = _aim_of_one(path, "y", y, None if isinstance(test, dict) else test, wanted)
    for called, array in (("y", y), ("y_test", test)):
        if array is not None:
            check_told_apart(path, called, array, found.targets)
    return found


def _aim_of_several(path: Path, y: dict[str, Any], test: Array | None, wanted: Wanted) -> Aim:
    held = test if isinstance(test, dict) else {}
    if wanted.names:
        raise InputError(f"--option: target_names={wanted.names} given; named arrays have names")
    if test is not None and held.keys() != y.keys():
        has = ", ".join(held) or "one array"
        raise InputError(f"{path}: y_test has {has}, y has {', '.join(y)}; make them alike")
    found = {}
    for name, array in y.items():
        aim = _aim_of_one(path, f"y_{name}", array, held.get(name), wanted.of(name), named=True)
        assert isinstance(aim.targets, Targets)
        found[name] = aim.targets.model_copy(update={"classes": aim.classes})
    return Aim(None, found)


def _aim_of_one(
    path: Path, called: str, y: Column, test: Column | None, wanted: Wanted, *, named: bool = False
) -> Aim:
    kind = wanted.kind or {"f": "values", "b": "labels"}.get(y.dtype.kind, "classes")
    if kind not in TARGETS:
        hint = did_you_mean(kind, TARGETS)
        raise InputError(f"--option: targets={kind} given; {hint}it must be one of {', '.join(TARGETS)}")
    arrays = [(called, y), *([(f"y_test{called[1:]}", test)] if test is not None else [])]
    for name, array in arrays:
        _check_form(path, name, array, y)
        CHECKS[kind](path, name, array)
    ignore = None if named and kind != "classes" else _ignored(wanted.ignore)
    classes = _classes(path, arrays, ignore) if kind == "classes" else None
    names = [name.strip() for name in wanted.names.split(",")] if wanted.names else None
    ragged = isinstance(y, Ragged)
    plain = classes is not None and ignore is None and not names and not named and not ragged
    if plain and (y.ndim == 1 or y.dtype == np.int64):
        return Aim(classes, None)
    if test is not None and test.dtype != y.dtype:
        raise InputError(f"{path}: y_test has dtype {test.dtype.name}, y {y.dtype.name}; make them alike")
    return Aim(classes, _described(path, y, kind, classes, ignore, names))


def _described(
    path: Path, y: Column, kind: str, classes: int | None, ignore: int | None, names: list[str] | None
) -> Targets:
    dtype = "bool" if kind == "labels" else SIGNED.get(y.dtype.name, y.dtype.name)
    given: dict[str, Any] = {"dtype": dtype, "shape": y.shape[1:], "names": names, "ignore": ignore}
    given["ragged"] = isinstance(y, Ragged)
    try:
        made = Targets.model_validate(given)
        check_kind(classes, made)
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"{path}: y: {said}") from None
    except ValueError as error:
        raise InputError(f"{path}: y: {error}") from None
    return made


def _check_form(path: Path, name: str, y: Column, first: Column) -> None:
    if isinstance(y, Ragged) != isinstance(first, Ragged):
        raise InputError(f"{path}: {name} or y has offsets, not both; make them alike")
    if y.dtype.name not in (*FEATURE_DTYPES, *SIGNED, "bool"):
        raise InputError(f"{path}: {name} has dtype {y.dtype.name}; it must hold integers, floats or bools")
    if 0 in y.shape[1:]:
        raise InputError(f"{path}: {name} has shape {list(y.shape)}; an example needs a target")
    whole = [array.dtype.kind in "iu" or array.dtype.kind for array in (y, first)]
    if y.shape[1:] != first.shape[1:] or whole[0] != whole[1]:
        found = f"{y.dtype} {list(y.shape[1:])} an example, y has {first.dtype} {list(first.shape[1:])}"
        raise InputError(f"{path}: {name} has {found}; make them alike")


def _check_classes(path: Path, name: str, y: Column) -> None:
    if y.dtype.kind not in "iu":
        raise InputError(f"{path}: {name} has dtype {y.dtype.name}; class numbers are integers")
    if y.shape[1:] == (1,):
        raise InputError(f"{path}: {name} has shape {list(y.shape)}; class numbers are [{len(y)}]")


def _check_values(path: Path, name: str, y: Column) -> None:
    values = flat(y)
    if not all_seen(values):
        row = _example(y, wrong := unseen(values))
        if np.isfinite(first := values[tuple(np.argwhere(wrong)[0])]):
            told = f"values beyond float32, first {first:.4g} in example {row}; use another unit"
            raise InputError(f"{path}: {name} has {told}")
        what = "NaN" if np.isnan(y[row]).any() else "infinite values"
        raise InputError(f"{path}: {name} has {what}, first in example {row}; fill or drop them")

    if y.dtype.kind == "u" and values.size and int(values.max()) >> 63:
        raise InputError(f"{path}: {name} has values up to {values.max()}; store them as floats")


def _example(y: Column, wrong: np.ndarray) -> int:
    """Return the first example in which something is wrong."""
    row = int(np.argwhere(wrong)[0, 0])
    return y.example_at(row) if isinstance(y, Ragged) else row


def _check_labels(path: Path, name: str, y: Column) -> None:
    y = y.view(np.uint8) if y.dtype.kind == "b" else y  # a file may have bools that are neither
    values = flat(y)
    if not (known := (values == 0) | (values == 1)).all():
        row = _example(y, ~known)
        raise InputError(f"{path}: {name} is not 0 or 1 in example {row}; targets=labels takes only these")


CHECKS = {"classes": _check_classes, "values": _check_values, "labels": _check_labels}


def _ignored(given: str | None) -> int | None:
    try:
        return None if given is None else int(given)
    except ValueError:
        raise InputError(f"--option: ignore={given} given; it must be a whole number") from None


def _classes(path: Path, arrays: list[tuple[str, Column]], ignore: int | None) -> int:
    """Return the largest class number + 1; refuse what cannot be one."""
    most = 0
    for name, column in arrays:
        y = flat(column)
        counted = y if ignore is None else y[y != ignore]
        if counted.size and not 0 <= int(counted.min()) <= int(counted.max()) < MOST_CLASSES:
            said = f"{name} has labels from {counted.min()} to {counted.max()}"
            raise InputError(f"{path}: {said}; number the classes 0, 1, 2, ..., or say targets=values")
        most = max(most, int(counted.max(initial=0)))
    return 1 + most


def integers(path: Path, name: str, values: np.ndarray, length: int) -> np.ndarray:
    """Return an array of one integer an example; refuse others."""
    if values.dtype.kind not in "iu":
        raise InputError(f"{path}: {name} has dtype {values.dtype.name}; it must hold integers")
    if values.shape != (length,):
        raise InputError(
            f"{path}: {name} has shape {list(values.shape)}; there are {length} examples, so [{length}]"
        )
    return values
