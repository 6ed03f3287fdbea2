"""Which masked ids all parties have, and the common order of the rows: that of the masked ids themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpifl.cli.align.curve import POINT
from mpifl.common import InputError

ABSENT = -1


def places_of(names: Sequence[str], sets: Sequence[bytes]) -> tuple[int, list[np.ndarray]]:
    """Return how many masked ids are common to all parties, and where each party's rows come.

    Args:
        names: Of the parties.
        sets: Each one's masked ids, 32 bytes each, in the order that it has sent them.

    Returns:
        The number m, and for each party int64 [n]: a place from 0 to m-1, the same for the same person at all
        parties, or ABSENT.

    Raises:
        InputError: nothing is common, or a party has sent a masked id twice, or zero.
    """
    masked = [np.frombuffer(one, f"S{POINT}") for one in sets]  # of one length, so no zero at an end is lost
    alone = [_different(name, one) for name, one in zip(names, masked, strict=True)]
    common = alone[0]
    for one in alone[1:]:
        common = np.intersect1d(common, one, assume_unique=True)
    if not len(common):
        raise InputError(f"no id is common to {' and '.join(names)}; see that they write ids alike")
    return len(common), [_places(common, one) for one in masked]


def _different(name: str, masked: np.ndarray) -> np.ndarray:
    """Return masked ids in ascending order; refuse what different ids do not become."""
    found = np.unique(masked)
    if len(found) < len(masked) or (len(found) and found[0] == b""):
        raise InputError(f"a masked id of party '{name}' is zero, or there twice; somebody's mask is none")
    return found


def _places(common: np.ndarray, masked: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(common, masked), len(common) - 1)
    return np.where(common[at] == masked, at, ABSENT).astype(np.int64)


def rows_of(places: np.ndarray, common: int) -> np.ndarray:
    """Return a party's row for each of the common places, int64 [m].

    Args:
        places: The place of each of its rows or ABSENT, as rank 0 says.
        common: m, as rank 0 says.

    Raises:
        InputError: the places are not 0 to m-1, each of them once.
    """
    (rows,) = np.nonzero(places != ABSENT)
    order = np.argsort(places[rows], kind="stable")
    if not common or not np.array_equal(places[rows[order]], np.arange(common)):
        raise InputError("rank 0 has sent no order of common rows; nothing is written. Ask who runs it")
    return rows[order]
