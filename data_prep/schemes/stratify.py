"""The rule by which rows, or whole groups of them, are drawn for a split: each class has its share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class ClassesOfUnits(NamedTuple):
    """Which classes the rows of units have: each pair of a unit and a class, int64 [pairs]."""

    units: np.ndarray
    classes: np.ndarray


def drawn(
    order: np.ndarray,
    sizes: np.ndarray,
    classes: np.ndarray,
    totals: Sequence[int],
    held: ClassesOfUnits | None = None,
) -> list[np.ndarray]:
    """Draw units for splits of so many rows in all; return those of each split, in the order given.

    A unit is a row, or a group of them. Every class gets its part of a split (`apportioned`). Units come in
    their turn and are taken where the part of their class has room for all their rows. What is then left of
    a split goes to further units in their turn, whatever their class. So a split never has too many rows, and
    of single rows exactly as many. Groups of rare classes are dealt before all others (`_rare_first`).

    Args:
        order: All units [units], as they are to have their turn.
        sizes: The rows of each [units].
        classes: The class of each [units], from 0 on.
        totals: The rows of each split.
        held: The classes of groups; None for single rows.
    """
    of_class = np.bincount(classes, sizes).astype(np.int64)
    split_of, kept = np.full(len(sizes), len(totals)), np.zeros(len(sizes), bool)
    if held is not None:
        split_of, kept = _rare_first(order, sizes, held, totals)
    for split, total in enumerate(totals):
        own, free = order[split_of[order] == split], order[split_of[order] == len(totals)]
        has, left = (np.bincount(classes[of], sizes[of], len(of_class)).astype(np.int64)
                     for of in (own, np.concatenate([own, free])))  # fmt: skip
        room = np.maximum(apportioned(total, of_class, left) - has, 0)
        free, alike = free[~kept[free]], np.zeros_like(classes)
        due = _fitting(free, sizes, classes, room)  # which are too many where one class was given more
        for units in (due, free):
            rest = np.array([total - sizes[split_of == split].sum()])
            split_of[_fitting(units[split_of[units] == len(totals)], sizes, alike, rest)] = split
    return [order[split_of[order] == split] for split in range(len(totals))]


def _rare_first(
    order: np.ndarray, sizes: np.ndarray, held: ClassesOfUnits, totals: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Deal groups of each class that two groups or more have, the class of the fewest groups first.

    One group of each such class stays for training. Then the test split gets the first in turn that it has
    room for, and the validation split the next, unless they have one of that class.

    Args:
        order: All groups [units], as they are to have their turn.
        sizes: The rows of each [units].
        held: The classes of their rows.
        totals: The rows of each split, the test split last.

    Returns:
        The split of each group, `len(totals)` where it has none, and whether it stays for training.
    """
    split_of, kept = np.full(len(sizes), len(totals)), np.zeros(len(sizes), bool)
    turn, room = np.empty(len(order), np.int64), list(totals)
    turn[order] = np.arange(len(order))
    by_class = held.units[np.lexsort((turn[held.units], held.classes))]
    holders = np.split(by_class, np.cumsum(np.bincount(held.classes))[:-1])
    rare = sorted((one for one in holders if len(one) > 1), key=len)
    for units in rare:
        fitting = units[sizes[units] <= totals[-1]]
        free = units[split_of[units] == len(totals)]
        others = free[free != fitting[0]] if len(fitting) == 1 else free
        if not kept[units].any() and len(others):
            kept[others[-1]] = True
        for split in reversed(range(len(totals))):
            free = units[(split_of[units] == len(totals)) & ~kept[units] & (sizes[units] <= room[split])]
            if len(free) and not (split_of[units] == split).any():
                split_of[free[0]], room[split] = split, room[split] - sizes[free[0]]
    return split_of, kept


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
