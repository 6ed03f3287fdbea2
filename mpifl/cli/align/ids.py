"""A party's ids as normalised bytes, and a random order."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence

import numpy as np

from mpifl.common import InputError


def normal_ids(where: str, ids: Sequence[str | None]) -> list[bytes]:
    """Return ids in Unicode's form NFC, without blanks around them, as UTF-8.

    Args:
        where: The table and its column, in the words of a message.
        ids: An id for each row.

    Raises:
        InputError: some ids are empty or occur more than once; the message has their number, but no id.
    """
    found = [unicodedata.normalize("NFC", id or "").strip().encode() for id in ids]
    if not found:
        raise InputError(f"{where}: no rows; a party needs at least one")
    if empty := found.count(b""):
        raise InputError(
            f"{where}: {empty:,} of {len(found):,} ids are empty; fill them in, or remove the rows"
        )
    if twice := len(found) - len(set(found)):
        said = f"{twice:,} of {len(found):,} rows have an id that an earlier row has"
        raise InputError(f"{where}: {said}; leave one row for each person")
    return found


def random_order(n: int) -> np.ndarray:
    """Return 0 to n-1 in a random order from the system's randomness, int64 [n]."""
    return np.argsort(np.frombuffer(os.urandom(8 * n), np.uint64), kind="stable")
