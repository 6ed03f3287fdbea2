"""What several schemes do: whole examples from shares, and members of classes to their owners."""

from __future__ import annotations

import numpy as np

from mpifl.common import InputError

DRAWS = 100
"""How often a scheme draws anew before it says that the minimum is out of reach."""

LARGEST = 1e9
"""Of any option: far more than means anything, and far less than overflows."""


def by_owner(owners: np.ndarray, silos: int) -> list[np.ndarray]:
    """Gather, for every silo, the positions in `owners` [n] that hold its number, in their order."""
    ends = np.cumsum(np.bincount(owners, minlength=silos))
    return np.split(np.argsort(owners, kind="stable"), ends[:-1])


def histogram(labels: np.ndarray) -> np.ndarray:
    """Count the examples of every class; refuse examples with a sequence of labels."""
    if labels.ndim > 1:
        raise InputError(
            f"--scheme: an example has {labels.shape[1]} labels, and this one cuts by a single label; "
            "use iid, quantity, power-law or natural"
        )
    return np.bincount(labels)


def sorted_by_label(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the positions of all labels [n] sorted by label, those of one label shuffled."""
    shuffled = rng.permutation(len(labels))
    return np.asarray(shuffled[np.argsort(labels[shuffled], kind="stable")])


def deal(members: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """Deal the members of all classes, sorted by class, to silos: counts [classes, silos] to each."""
    owners = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
    return [members[positions] for positions in by_owner(owners, counts.shape[1])]


def whole(shares: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Make whole examples, int [classes, silos], of shares [classes, silos] of classes of these sizes
    [classes].

    By cutting at the cumulated shares: nothing is lost, and no silo is off by more than one.
    """
    cuts = np.floor(np.cumsum(shares, axis=1)[:, :-1] * sizes[:, None]).astype(np.int64)
    cuts = np.minimum(cuts, sizes[:, None])  # shares that sum to a little more than 1
    return np.asarray(np.diff(cuts, axis=1, prepend=0, append=sizes[:, None]))


def check_positive(option: str, value: float) -> None:
    """Refuse what is not above 0, or larger than LARGEST."""
    if not 0 < value <= LARGEST:
        raise InputError(
            f"--{option}: {value} given; it must be above 0 and at most {LARGEST:g}, for instance 0.5"
        )


def out_of_reach(given: str, best: int, min_examples: int) -> InputError:
    """Say that no draw reached the minimum, and what would do."""
    reached = (
        f"in {DRAWS} draws the smallest silo had {best} examples at best, --min-examples asks {min_examples}"
    )
    return InputError(f"{given}: {reached}; use a larger --alpha, fewer --silos or a lower --min-examples")
