"""The masked ids that all parties have, and the common order of the rows: the order of these masked ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpifl.cli.align.curve import POINT
from mpifl.common import InputError

ABSENT = -1


def places_of(names: Sequence[str], sets: Sequence[bytes]) -> tuple[int, list[np.ndarray]]:
    """Return the number of masked ids that all parties have, and the place of each party's rows.

    Args:
        names: The parties' names.
        sets: Each party's masked ids, 32 bytes each, in the order of its rows.

    Returns:
        The number m, and for each party int64 [n]: a place from 0 to m-1, or ABSENT. The same person has the
            same place at all parties.

    Raises:
        InputError: no id is common, or a party's masked ids contain zero or one id twice.
    """
    masked = [
        np.frombuffer(one, f"S{POINT}") for one in sets
    ]  # of fixed length, so no zero byte at the end is lost
    alone = [_different(name, one) for name, one in zip(names, masked, strict=True)]
    common = alone[0]
    for one in alone[1:]:
        common = np.intersect1d(common, one, assume_unique=True)
    if not len(common):
        raise InputError(f"no id is common to {' and '.join(names)}; see that they write ids alike")
    return len(common), [_places(common, one) for one in masked]


def _different(name: str, masked: np.ndarray) -> np.ndarray:
    """Return masked ids in ascending order; refuse zero and repeated ones, which different ids never give."""
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
        places: The place of each of its rows or ABSENT, from rank 0.
        common: m, from rank 0.

    Raises:
        InputError: the places are not 0 to m-1, each exactly once.
    """
    (rows,) = np.nonzero(places != ABSENT)
    order = np.argsort(places[rows], kind="stable")
    if not common or not np.array_equal(places[rows[order]], np.arange(common)):
        raise InputError("rank 0 has sent no order of common rows; nothing is written. Ask who runs it")
    return rows[order]
