"""What a task is told of a federation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol


class Shards(Protocol):
    """What a task is told of a federation's examples: its `federation.json`."""

    @property
    def features(self) -> Any:
        """What one example is: its `shape`, `dtype`, `scale` and `offset`."""

    @property
    def classes(self) -> int | None:
        """How many classes the labels are of; None where targets are values, or several labels at once."""

    @property
    def silos(self) -> Any:
        """An entry for each silo, with its `labels`: how many training examples each class has; None where
        another silo holds the targets of the same rows."""


@dataclass(frozen=True)
class TaskFacts:
    """What the package's tasks go by.

    Attributes:
        classes: How many classes the labels are of; None where targets are values, or several labels at once.
        dtype: Of the targets as they are stored.
        shape: Of one example's target; None where the shards do not say it.
        ignore: The target that does not count, if there is one.
        counts: How many training examples of all silos each class has.
        names: Of the arrays, where targets are several.
        ragged: Whether examples have unequal numbers of targets; `shape` then is that of the longest.
    """

    classes: int | None = None
    dtype: str = "int64"
    shape: tuple[int, ...] | None = None
    ignore: int | None = None
    counts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    ragged: bool = False

    @classmethod
    def of(cls, spec: Shards) -> TaskFacts:
        """Read them from a federation; one whose targets are not described has class numbers."""
        targets = getattr(spec, "targets", None)
        labels = [entry.labels for entry in spec.silos if entry.labels is not None]
        counts = tuple(sum(column) for column in zip(*labels, strict=True))
        if targets is None:
            return cls(spec.classes, counts=counts)
        if isinstance(targets, dict):
            return cls(names=tuple(sorted(targets)))
        ragged = getattr(targets, "ragged", False)
        return cls(spec.classes, targets.dtype, tuple(targets.shape), targets.ignore, counts, ragged=ragged)

    @property
    def columns(self) -> int:
        """How many numbers one example's target has, as far as the shards say it."""
        return math.prod(self.shape or ())

    @property
    def real(self) -> bool:
        """Whether targets are stored as floating-point numbers."""
        return self.dtype.startswith("float")

    @property
    def yes_or_no_of_each(self) -> bool:
        """Whether an example has a row of class numbers 0 and 1, as labels of which several hold have."""
        return self.classes == 2 and len(self.shape or ()) == 1 and not self.ragged

    @property
    def told_of_one_hot(self) -> str:
        """Say, of rows that may be one-hot, what would do; "" if they cannot be."""
        rows = len(self.shape or ()) == 1 and self.columns > 1 and self.classes in (None, 2)
        to_do = "have the source store class numbers (argmax of each row), or take 'multilabel'"
        return f"; if the rows are one-hot, {to_do}" if rows else ""

    @property
    def usual(self) -> str:
        """The task that such targets are usually for."""
        if self.names or (self.ragged and self.classes is None):
            return "module:Task"
        if self.yes_or_no_of_each:
            return "multilabel"
        if self.classes is not None:
            return "segmentation" if self.shape else "classification"
        if self.dtype != "bool":
            return "regression"
        return "multilabel" if self.shape else "binary"

    @property
    def told(self) -> str:
        """What the targets are, as an error says it."""
        if self.names:
            return f"arrays with names ({', '.join(self.names)})"
        shape = "" if self.shape is None else f" of shape {list(self.shape)}"
        if self.classes is None:
            return f"{'ragged ' * self.ragged}{self.dtype} values{shape}"
        return f"class numbers{shape}, of {self.classes} classes"
