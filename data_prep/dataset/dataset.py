"""What a source hands over: labelled examples,
in memory or read when they are needed, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from pydantic import ValidationError

from data_prep.dataset.example_groups import Groups, Order
from data_prep.dataset.rows import Beside, Picked, Rows
from mpifl.common import InputError
from mpifl.data import Aims, Column, Features, Inputs, Ragged, Targets, check_masks, told
from mpifl.data.shards import Provenance


class Scaling(Protocol):
    """What standardises features once it is known which rows train."""

    def fit(self, ids: np.ndarray) -> None:
        """Learn statistics of the rows at some positions, which train."""

    @property
    def encoding(self) -> dict[str, Any] | None:
        """Return how examples become numbers by them, if that is known."""


@dataclass(frozen=True)
class Dataset:
    """Labelled examples that a source has read and checked.

    Attributes:
        where: The file or folder they came from, as messages name it.
        x: Features of shape [n, *shape], as they are to be stored; may be read lazily. Several arrays are the
            fields of a structured one, of shape [n]; and so they are of y. `Beside` has them where some are
            ragged.
        y: Targets of shape [n, ...]: without `targets`, int64 labels in [0, classes); in memory, or mapped.
        classes: How many classes there are, where targets are class numbers; None where they are values.
        files: The sha256 of every file read, by its base name, or by its path where two have the same; who
            asks may have to wait for them.
        scale: What a model multiplies stored features by; None leaves them alone.
        test: The server's own test set (x, y), if the source has one.
        silo: The silo that each example belongs to by nature, integers of shape [n], if the source knows.
        offset: What a model adds to scaled features.
        class_names: The classes' names, in their order.
        feature_names: The names of the columns of a table.
        silo_names: The names of the numbers in `silo`.
        held: Whether each example [n] belongs to its silo's test split, if the source itself says so.
        targets: What one example's target is, where it is no int64 class number.
        coded: Whether features are numbers of `class_names`, too, as characters of a text are.
        groups: Whose each example is, if they are to stay together.
        order: When each example was, if the last ones are to be held out.
        by_rows: Whether what is held out is drawn without regard to classes: features were standardised by
            the rows that train so.
        done: What was done to rows and values, as `source` of `federation.json` has it: rows that were left
            out, gaps that were filled, spellings that were taken for one.
        laid: How many images may be transparent, and on what they lie, likewise.
        given: The row or record that each example was, and its id, if the source knows; without it, an
            example's row is its position.
        given_of_test: The same of the server's own test set.
        ids_asked: Whether the source's own description asks for ids in shards.
        encoding: How examples became numbers, as `encoding` of `source` has it; None where nothing says it.
        scaling: What standardises `x`, if something is to, when it has been fitted.
        by_own: Columns whose numbers depend on what else these rows hold, and what the spec could say of
            each instead.
        lacks: Why nothing can be learned of these rows alone; "" where something can.
    """

    where: str
    x: Rows | Ragged | Beside
    y: Any
    classes: int | None
    files: Mapping[str, str]
    scale: float | None = None
    test: tuple[Rows | Ragged | Beside, Any] | None = None
    silo: np.ndarray | None = None
    offset: float = 0.0
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    silo_names: dict[int, str] | None = None
    held: np.ndarray | None = None
    targets: Aims | None = None
    coded: bool = False
    groups: Groups | None = None
    order: Order | None = None
    by_rows: bool = False
    done: dict[str, Any] | None = None
    laid: dict[str, Any] | None = None
    given: Provenance | None = None
    given_of_test: Provenance | None = None
    ids_asked: bool = False
    encoding: dict[str, Any] | None = None
    scaling: Scaling | None = None
    by_own: Mapping[str, str] = field(default_factory=dict)
    lacks: str = ""

    @property
    def told(self) -> dict[str, Any]:
        """Return what was done to the examples, for `source` of `federation.json`."""
        return {**(self.done or {}), **({"laid": self.laid} if self.laid else {})}

    def noting(self, **lines: str) -> Dataset:
        """Return the same, with other lines on how examples were read; an empty one takes a line away."""
        done = {**(self.done or {})}
        notes = {kind: line for kind, line in {**done.pop("notes", {}), **lines}.items() if line}
        return replace(self, done={**done, **({"notes": notes} if notes else {})} or None)

    def fitted(self, train: np.ndarray) -> Dataset:
        """Return the same, standardised by the examples at some positions, which train, if it is to be."""
        if self.scaling is None:
            return self
        self.scaling.fit(train)
        return replace(self, encoding=self.scaling.encoding)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def aim(self) -> str:
        """Say what targets are, as messages do."""
        return told(self.classes, self.targets)

    @property
    def single(self) -> bool:
        """Tell whether every example has one class number that counts, by which a scheme can cut."""
        counts = not isinstance(self.targets, Targets) or self.targets.ignore is None
        return self.classes is not None and self.y.ndim == 1 and counts

    @property
    def one(self) -> Features:
        """Describe one example, where it is one array; raise InputError where it is several."""
        if isinstance(found := self.features, dict):
            what = f"features of {self.where} are named arrays ({', '.join(found)})"
            raise InputError(f"--scheme: {what}, and this one takes one array; use iid or natural")
        if found.ragged:
            what = f"features of {self.where} are of unequal lengths"
            raise InputError(f"--scheme: {what}, and this one takes one length; use iid or natural")
        return found

    @property
    def features(self) -> Inputs:
        """Describe one example for `federation.json`."""
        if isinstance(self.x, Beside):
            several: Inputs = {name: _described(one) for name, one in self.x.arrays.items()}
            try:
                check_masks(several)
            except ValueError as error:
                raise InputError(f"{self.where}: {error}; give the mask another name") from None
            return several
        if names := self.x.dtype.names:
            kinds = {name: self.x.dtype[name] for name in names}
            return {name: Features(shape=of.shape, dtype=of.base.name) for name, of in kinds.items()}
        return _described(self.x, scale=self.scale, offset=self.offset)

    def pick(self, index: np.ndarray) -> Dataset:
        """Return some of the examples, by their positions; features are not read."""
        silo, held = (None if column is None else column[index] for column in (self.silo, self.held))
        groups, order = self.groups and self.groups.pick(index), self.order and self.order.pick(index)
        x = Picked(self.x, index) if not isinstance(self.x, Ragged | Beside) else self.x[index]
        more: dict[str, Any] = {
            "groups": groups,
            "order": order,
            "given": self.given and self.given.take(index),
        }
        return replace(self, x=x, y=self.y[index], silo=silo, held=held, **more)


def _described(x: Rows | Column, **seen: Any) -> Features:
    """Describe one example of an array, which is of unequal lengths where that is ragged."""
    padding = {"ragged": True, "fill": x.fill, "mask": x.mask} if isinstance(x, Ragged) else {}
    try:
        return Features.model_validate({"shape": x.shape[1:], "dtype": x.dtype.name, **seen, **padding})
    except ValidationError as error:
        if not padding:
            raise
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"--option: of a ragged array: {said}; see --option fill, mask") from None


@dataclass(frozen=True)
class Cut:
    """What a scheme may return in place of a list of index arrays: them, and what the silos are called.

    Attributes:
        parts: The positions of every silo's examples; an example may stand in several (vertical).
        names: A name for every silo; None calls them by number, or by the source's own names.
    """

    parts: list[np.ndarray]
    names: list[str] | None = None
