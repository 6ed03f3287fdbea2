"""Groups of examples that stay together, whichever scheme cuts: each counts as one example."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from data_prep.dataset import Cut, Dataset, Groups
from data_prep.schemes.grouping import by_owner
from data_prep.schemes.scheme import Options, Scheme
from data_prep.schemes.stratify import ClassesOfUnits
from mpifl.common import InputError


@dataclass(frozen=True)
class Units:
    """What is dealt out and held out whole: some examples, or the groups of them.

    Attributes:
        members: The positions of each one's examples [units].
        sizes: How many these are, int64 [units].
        classes: The class that most examples of each have, of equally many the lowest; 0 without classes.
        held: All classes that each one's examples have; None of single examples.
    """

    members: list[np.ndarray] | np.ndarray
    sizes: np.ndarray
    classes: np.ndarray
    held: ClassesOfUnits | None = None

    def rows(self, chosen: np.ndarray) -> np.ndarray:
        """Return the positions of the examples of some units, in their order."""
        if isinstance(self.members, np.ndarray):
            return np.asarray(self.members[chosen])
        return np.concatenate([self.members[unit] for unit in chosen.tolist()] or [np.arange(0)])


def units_of(part: np.ndarray, groups: Groups | None, labels: np.ndarray | None) -> Units:
    """Return the units of the examples at some positions; `labels` [len(part)] are class numbers."""
    classes = np.zeros(len(part), np.int64) if labels is None else np.asarray(labels, np.int64)
    if groups is None:
        return Units(part, np.ones(len(part), np.int64), classes)
    _, owners = np.unique(groups.of[part], return_inverse=True)
    count = int(owners.max()) + 1 if len(owners) else 0
    members = [part[at] for at in by_owner(owners, count)] if count else []
    width = int(classes.max(initial=0)) + 1
    held = None if labels is None else ClassesOfUnits(*np.divmod(np.unique(owners * width + classes), width))
    return Units(members, np.bincount(owners, minlength=count), _most_common(owners, classes, count), held)


def _most_common(owners: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """Return the class that most examples of each owner have, of equally many the lowest."""
    width = int(classes.max(initial=0)) + 1
    pairs, times = np.unique(owners * width + classes, return_counts=True)
    order = np.lexsort((-(pairs % width), times))  # the last one of an owner wins
    found = np.zeros(count, np.int64)
    found[pairs[order] // width] = pairs[order] % width
    return found


def cut_whole(
    scheme: Scheme, data: Dataset, silos: int | None, rng: np.random.Generator, options: Options
) -> Cut:
    """Cut a data set by a scheme, its groups whole: the scheme deals them as it deals examples.

    To the scheme a group has the class that most of its examples have, and the silo of all of them.

    Raises:
        InputError: as the scheme itself; or it cannot keep the groups whole.
    """
    if data.groups is None:
        return scheme(data, silos, rng, options)
    units = units_of(np.arange(len(data)), data.groups, data.y if data.single else None)
    first = np.array([members[0] for members in units.members])
    _check_cut(scheme, data, units, first, options)
    one_each = data.pick(first)
    one_each = replace(one_each, groups=None, y=units.classes if data.single else one_each.y)
    if data.order is not None:  # a group is as late as its last row
        latest = np.array([data.order.of[members].max() for members in units.members])
        one_each = replace(one_each, order=replace(data.order, of=latest))
    try:
        cut = scheme(one_each, silos, rng, options)
    except InputError as error:
        if str(error).startswith("--scheme"):  # says nothing of how many there are
            raise
        counted = f"each of the {len(first):,} groups of {data.groups.name} counts as one example"
        raise InputError(f"{error} ({counted})") from None
    return replace(cut, parts=[units.rows(part) for part in cut.parts])


def _check_cut(scheme: Scheme, data: Dataset, units: Units, first: np.ndarray, options: Options) -> None:
    """Refuse a scheme that would have to split groups."""
    name = data.groups.name if data.groups else ""
    of_group = np.repeat(np.arange(len(first)), units.sizes)
    rows = units.rows(np.arange(len(first)))
    if scheme.by(options) == "silo" and data.silo is not None:
        told = "rows of {} silos, and natural silos would split them; use another scheme"
        _check_one(name, data.silo[rows], data.silo[first], of_group, rows, told)
    if scheme.exact(options):
        told = "rows of {} classes, and 'classes' gives a silo an exact number; use dirichlet or iid"
        _check_one(name, data.y[rows], data.y[first], of_group, rows, told)


def _check_one(
    name: str, values: np.ndarray, first: np.ndarray, of_group: np.ndarray, rows: np.ndarray, told: str
) -> None:
    """Refuse groups whose rows do not all have the value of the first one."""
    odd = values != first[of_group]
    if odd.any():
        group = of_group[np.argmax(odd)]
        several, shown = len(np.unique(values[of_group == group])), sorted(rows[of_group == group].tolist())
        what = f"{len(np.unique(of_group[odd])):,} groups of {name} have rows of several"
        example = f"one has rows {', '.join(map(str, shown[:3]))}{', ...' if len(shown) > 3 else ''}"
        raise InputError(f"--group: {what}: {example}, {told.format(several)}")


def check_groups(data: Dataset) -> None:
    """Refuse groups that cannot be kept whole whatever the scheme.

    Raises:
        InputError: all examples are of one group; the source itself says of one group that some of its
            examples are for testing and some are not.
    """
    if data.groups is None:
        return
    name, of = data.groups.name, data.groups.of
    if len(of) and (of == of[0]).all():
        what = f"every row of {data.where} has the same {name}, and a single group cannot be split"
        raise InputError(f"--group: {what}; name the column that tells persons apart")
    if data.held is not None and (both := np.intersect1d(of[data.held], of[~data.held])).size:
        rows = np.flatnonzero(of == both[0]).tolist()
        what = f"held_out splits {len(both):,} groups of {name}, one of rows {', '.join(map(str, rows[:3]))}"
        raise InputError(f"--group: {data.where}: {what}; hold out all rows of a group or none")
    tested = data.groups.of_test
    if tested is not None and (both := np.intersect1d(of, tested)).size:
        rows = np.flatnonzero(of == both[0]).tolist()
        what = f"{len(both):,} groups of {name} are in the server's test set, too, one at row {rows[0]}"
        raise InputError(f"--group: {data.where}: {what}; remove their rows from one of them")
