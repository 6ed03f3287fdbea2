"""The facts of a federation that tasks use."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpifl.data.shards import AnySpec


@dataclass(frozen=True)
class TaskFacts:
    """The facts of a federation that the package's tasks use.

    Attributes:
        classes: The number of classes; None if targets are values, or several labels at once.
        dtype: The dtype of the stored targets.
        shape: The shape of one example's target; None if the shards do not tell it.
        ignore: The target that does not count, or None.
        counts: The number of training examples of each class, over all silos.
        names: The names of the arrays, if targets are several arrays.
        ragged: Whether examples have unequal numbers of targets; then `shape` is that of the longest.
        threshold: The probability above which the answer is yes.
    """

    classes: int | None = None
    dtype: str = "int64"
    shape: tuple[int, ...] | None = None
    ignore: int | None = None
    counts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    ragged: bool = False
    threshold: float = 0.5

    @classmethod
    def of(cls, spec: AnySpec) -> TaskFacts:
        """Return the facts of a federation. If its targets are not described, they are class numbers."""
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
        """The number of values in one example's target, as far as the shards tell it."""
        return math.prod(self.shape or ())

    @property
    def real(self) -> bool:
        """Whether targets are stored as floating-point numbers."""
        return self.dtype.startswith("float")

    @property
    def yes_or_no_of_each(self) -> bool:
        """Whether an example has a row of class numbers 0 and 1, as for several labels at once."""
        return self.classes == 2 and len(self.shape or ()) == 1 and not self.ragged

    @property
    def told_of_one_hot(self) -> str:
        """A hint for rows that may be one-hot; "" if they cannot be."""
        rows = len(self.shape or ()) == 1 and self.columns > 1 and self.classes in (None, 2)
        to_do = "have the source store class numbers (argmax of each row), or use 'multilabel'"
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
        """The description of the targets in an error message."""
        if self.names:
            return f"arrays with names ({', '.join(self.names)})"
        shape = "" if self.shape is None else f" of shape {list(self.shape)}"
        if self.classes is None:
            return f"{'ragged ' * self.ragged}{self.dtype} values{shape}"
        return f"class numbers{shape}, of {self.classes} classes"
