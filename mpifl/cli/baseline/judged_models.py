"""The models of a baseline on the test rows of one silo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpifl.report.judging import RowFigures


@dataclass(frozen=True)
class JudgedSilo:
    """Models on the rows of one silo: federated, alone, and pooled if there is one."""

    number: int
    name: str
    models: Sequence[RowFigures]
    groups: np.ndarray | None = None
    """The group of each row, int64 [rows]."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.models[0].rows

    @property
    def counted(self) -> int:
        """How many of them count."""
        return self.models[0].counted

    @cached_property
    def pair(self) -> list[RowFigures]:
        """What the first two models say of the rows that count."""
        return [one.only(self.models[0].counting) for one in self.models[:2]]

    @cached_property
    def units(self) -> np.ndarray:
        """What is drawn or exchanged together, numbered from 0: the group of each row that counts, or the
        row; [rows that count]."""
        if self.groups is None:
            return np.arange(self.counted)
        return np.unique(self.groups[self.models[0].counting], return_inverse=True)[1]

    @property
    def many(self) -> int:
        """How many rows, or groups of rows, count."""
        return int(self.units.max(initial=-1)) + 1

    @property
    def kind(self) -> str:
        """What is drawn or exchanged together: rows, or groups of them."""
        return "groups" if self.many < self.counted else "rows"

    @cached_property
    def values(self) -> list[float]:
        """The figure of each model."""
        return [one.value() for one in self.models]

    @property
    def alike(self) -> bool:
        """Whether all rows have one class."""
        return len(self.models[0].labels or ()) == 1

    @property
    def both_right(self) -> tuple[int, int] | None:
        """Rows that the federated model alone has right, and those that the other alone has right."""
        federated, alone = self.models[0].right, self.models[1].right
        if federated is None or alone is None:
            return None
        return int((federated & ~alone).sum()), int((alone & ~federated).sum())
