"""The rule by which rows, or whole groups of them, are drawn for a split: each class has its share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def drawn(
    order: np.ndarray, sizes: np.ndarray, classes: np.ndarray, totals: Sequence[int]
) -> list[np.ndarray]:
    """Draw units for splits of so many rows in all; return those of each split, in the order given.

    A unit is a row, or a group of them. Every class gets its part of a split (`apportioned`). Units come in
    their turn and are taken where the part of their class has room for all their rows. What is then left of
    a split goes to further units in their turn, whatever their class. So a split never has too many rows, and
    of single rows exactly as many.

    Args:
        order: All units [units], as they are to have their turn.
        sizes: The rows of each [units].
        classes: The class of each [units], from 0 on.
        totals: The rows of each split.
    """
    of_class = np.bincount(classes, sizes).astype(np.int64)
    split_of = np.full(len(sizes), len(totals))
    for split, total in enumerate(totals):
        free = order[split_of[order] == len(totals)]
        left = np.bincount(classes[free], sizes[free], len(of_class)).astype(np.int64)
        own = _fitting(free, sizes, classes, apportioned(total, of_class, left))
        split_of[own] = split
        free, rest = order[split_of[order] == len(totals)], np.array([total - sizes[own].sum()])
        split_of[_fitting(free, sizes, np.zeros_like(classes), rest)] = split
    return [order[split_of[order] == split] for split in range(len(totals))]


def apportioned(total: int, of_class: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return how many rows of each class a split of `total` has, int64 [classes], by largest remainders.

    A class has its share of the split, rounded down. One more have those of the largest remainders, of equal
    ones the lower number, and last of all those that would have none left.

    Args:
        total: The rows of the split.
        of_class: The rows of each class [classes].
        left: Those of them that no split has yet.
    """
    whole, remainder = np.divmod(total * of_class, max(1, of_class.sum()))
    whole = np.minimum(whole, left)
    turn = np.lexsort((-remainder, left - whole < 2))
    whole[turn[: total - whole.sum()]] += 1
    return np.asarray(np.minimum(whole, left))


def _fitting(units: np.ndarray, sizes: np.ndarray, classes: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Return those of some units whose rows the room of their class [classes] has place for, in turn."""
    if (sizes[units] == 1).all():
        return np.asarray(units[_turns(classes[units]) < room[classes[units]]])
    room, taken = room.copy(), []
    for unit, size, label in zip(units.tolist(), sizes[units].tolist(), classes[units].tolist(), strict=True):
        if size <= room[label]:
            room[label] -= size
            taken.append(unit)
    return np.array(taken, np.int64)


def _turns(classes: np.ndarray) -> np.ndarray:
    """Return how many of the same class come before each, int64 [n]."""
    order = np.argsort(classes, kind="stable")
    ends = np.cumsum(np.bincount(classes))
    turns = np.empty(len(classes), np.int64)
    turns[order] = np.arange(len(classes)) - np.concatenate([[0], ends])[classes[order]]
    return turns
