"""The scheme that leaves every example where it came from."""

from __future__ import annotations

import numpy as np

from data_prep.schemes.grouping import by_owner
from mpifl.common import InputError


def natural(ids: np.ndarray, silos: int | None, rng: np.random.Generator) -> list[np.ndarray]:
    """Give every distinct id its own silo, in the order of the ids; `silos`, where given, must be as many."""
    distinct, owners = np.unique(ids, return_inverse=True)
    if silos not in (None, len(distinct)):
        raise InputError(f"--silos: {silos} given, but the data names {len(distinct)}; leave it out")
    return by_owner(owners, len(distinct))
