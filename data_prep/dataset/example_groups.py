"""Groups and order of examples, which decide what must stay together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

KEEPS = ("row", "id", "none")
"""What shards may keep of where examples were given: the number of the row, the id, too, or nothing."""


@dataclass(frozen=True)
class Groups:
    """Whose each example is: those of one group stay together, in one split of one silo.

    Attributes:
        name: The column or array that says it.
        of: The group of each example, int64 [n], as the source numbers them.
        of_test: Those of the server's own test set, in the same numbers, if the source knows them.
    """

    name: str
    of: np.ndarray
    of_test: np.ndarray | None = None

    def pick(self, index: np.ndarray) -> Groups:
        """Return those of some examples."""
        return replace(self, of=self.of[index])


def renumbered(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the groups of the examples of several splits, int64 [n] each, numbered in the order in which
    they come: numbers that say who is one, and nothing of an id."""
    if not parts:
        return []
    _, first, codes = np.unique(np.concatenate(parts), return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return np.split(number[codes], np.cumsum([len(one) for one in parts])[:-1])


@dataclass(frozen=True)
class Order:
    """When each example was, by a column of numbers or dates.

    Attributes:
        name: The column or array that says it.
        of: The number of each example, float64 [n], finite; the larger, the later.
    """

    name: str
    of: np.ndarray

    def pick(self, index: np.ndarray) -> Order:
        """Return those of some examples."""
        return replace(self, of=self.of[index])
