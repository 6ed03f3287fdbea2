"""The scheme that cuts columns in place of examples:
every silo has all rows, and one of them the targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data_prep.dataset import Cut, Dataset
from data_prep.schemes.grouping import check_positive
from data_prep.schemes.scheme import Options, Scheme
from mpifl.common import InputError, choices

ALONG = {"flat": None, "height": -2, "width": -1}
"""The axis of an example that is cut, by the name of a way; None flattens it."""


def deal_columns(
    shape: Sequence[int],
    silos: int | None,
    rng: np.random.Generator,
    *,
    label_silo: int = 0,
    columns: str = "shuffled",
    sizes: str = "",
    alpha: float = math.inf,
    along: str = "flat",
) -> list[np.ndarray]:
    """Deal the columns 0, 1, ... of a flattened example to silos; those of a silo are in ascending order.

    With `alpha`, columns go to silos by shares drawn from Dir(alpha), and each silo has one at least: the
    split by importance of VertiBench (Wu, Hou and He 2024), as their `ImportanceSplitter` draws it.

    Args:
        shape: That of an example.
        silos: How many silos there are; as many as `sizes`.
        rng: What draws the columns.
        label_silo: The silo that holds the targets.
        columns: "shuffled", or "contiguous": neighbours stay together and their order is not drawn.
        sizes: How many columns each silo gets, as "15,93"; without it as many to each, but for one.
        alpha: The smaller, the more unequal the numbers of columns; infinite, as many to each.
        along: "flat"; or "height" or "width": images are cut along it and stay images.
    """
    lines = _lines(shape, along)
    wanted = _wanted(sizes)
    silos = silos if wanted is None else _as_many(silos, wanted, lines)
    if silos is None or not 1 <= silos <= lines:
        given = "not" if silos is None else silos
        raise InputError(f"--silos: {given} given; {lines} columns go to 1 to {lines} silos")
    if not 0 <= label_silo < silos:
        raise InputError(f"--label-silo: {label_silo} given; the silos are 0 to {silos - 1}")
    if columns not in ("shuffled", "contiguous"):
        raise InputError(f"--columns: '{columns}' given; it is shuffled, contiguous, or names as age,sex;bmi")
    if wanted is not None and alpha != math.inf:
        raise InputError("--alpha: --sizes says how many columns each silo has; leave one of them out")
    order = rng.permutation(lines) if columns == "shuffled" else np.arange(lines)
    counts = wanted or _counts(lines, silos, rng, alpha)
    blocks = [np.sort(block) for block in np.split(order, np.cumsum(counts)[:-1])]
    return [_flattened(block, shape, along) for block in blocks]


def named_columns(
    given: str, names: Sequence[str] | None, silos: int | None, label_silo: int
) -> list[np.ndarray]:
    """Return the columns that each silo has by name, as `age,sex;age,bmi`; some may be at several silos.

    A category's name stands for all of its levels.

    Raises:
        InputError: columns have no names, one is unknown, or one is nowhere.
    """
    if not names:
        raise InputError(
            "--columns: given by name, and columns have none; say --option feature_names=age,sex"
        )
    dealt = []
    for silo, words in enumerate(given.rstrip(";").split(";")):
        found = set[int]()
        for word in (word.strip() for word in words.split(",")):
            own = [at for at, name in enumerate(names) if word in (name, name.partition("=")[0])]
            if not own:
                there = choices(word, dict.fromkeys(name.partition("=")[0] for name in names))
                raise InputError(f"--columns: silo {silo}: no column is called '{word[:60]}'; {there[:300]}")
            found.update(own)
        dealt.append(np.array(sorted(found)))
    if lost := sorted(set(range(len(names))) - {at for own in dealt for at in own.tolist()}):
        raise InputError(f"--columns: '{names[lost[0]]}' is at no silo; name it, or remove it from the data")
    if silos not in (None, len(dealt)):
        raise InputError(f"--columns: of {len(dealt)} silos, --silos says {silos}; leave --silos out")
    if not 0 <= label_silo < len(dealt):
        raise InputError(f"--label-silo: {label_silo} given; the silos are 0 to {len(dealt) - 1}")
    return dealt


def shape_of(columns: np.ndarray, shape: Sequence[int], along: str) -> tuple[int, ...]:
    """Return the shape of what a silo has of an example of this shape."""
    if (axis := ALONG[along]) is None:
        return (len(columns),)
    kept = list(shape)
    kept[axis] = len(columns) * shape[axis] // math.prod(shape)
    return tuple(kept)


def _lines(shape: Sequence[int], along: str) -> int:
    """Return how many things are dealt: numbers of an example, or lines of an image."""
    if along not in ALONG:
        raise InputError(f"--along: '{along}' given; {choices(along, ALONG, 'it is')}")
    if (axis := ALONG[along]) is None:
        return math.prod(shape)
    if len(shape) not in (2, 3):
        raise InputError(f"--along: {along} is of images, examples have the shape {list(shape)}; use flat")
    return shape[axis]


def _wanted(sizes: str) -> list[int] | None:
    """Read how many columns each silo is to get."""
    try:
        wanted = [int(size) for size in sizes.split(",")] if sizes else None
    except ValueError:
        wanted = [0]
    if wanted and min(wanted) < 1:
        raise InputError(f"--sizes: '{sizes}' given; it is a number of columns for each silo, as 15,93")
    return wanted


def _as_many(silos: int | None, wanted: Sequence[int], lines: int) -> int:
    if silos not in (None, len(wanted)):
        raise InputError(f"--sizes: {len(wanted)} silos, --silos says {silos}; leave --silos out")
    if sum(wanted) != lines:
        raise InputError(f"--sizes: {sum(wanted)} columns in all; there are {lines} to deal")
    return len(wanted)


def _counts(lines: int, silos: int, rng: np.random.Generator, alpha: float) -> list[int]:
    """Return how many columns each silo gets: one, and of the others its share."""
    if alpha == math.inf:
        return [len(block) for block in np.array_split(np.arange(lines), silos)]
    check_positive("alpha", alpha)
    shares = rng.dirichlet(np.full(silos, alpha))
    return [1 + int(count) for count in rng.multinomial(lines - silos, shares)]


def _flattened(block: np.ndarray, shape: Sequence[int], along: str) -> np.ndarray:
    """Return the columns of a flattened example that lie on some lines of it."""
    if (axis := ALONG[along]) is None:
        return block
    return np.arange(math.prod(shape)).reshape(shape).take(block, axis).reshape(-1)


@dataclass(frozen=True)
class Vertical(Scheme):
    """A scheme of columns; `data_prep.cut.cut_columns` writes what it deals."""

    def __call__(self, data: Dataset, silos: int | None, rng: np.random.Generator, options: Options) -> Cut:
        """Refuse: there is nothing in it for examples."""
        raise InputError(
            "--scheme: vertical cuts columns, not examples; use data_prep.cut.cut_columns.partition_columns"
        )
