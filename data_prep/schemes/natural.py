"""The scheme that leaves every example where it came from."""

from __future__ import annotations

import numpy as np

from data_prep.schemes.grouping import by_owner
from mpifl.common import InputError


def natural(ids: np.ndarray, silos: int | None, rng: np.random.Generator) -> list[np.ndarray]:
    """Give every distinct id its own silo, in the order of the ids; fewer `silos` are dealt whole ids, drawn,
    as many each but for one."""
    distinct, owners = np.unique(ids, return_inverse=True)
    if silos is not None and not 1 <= silos <= len(distinct):
        raise InputError(
            f"--silos: {silos} given, but the data names {len(distinct)}; leave it out, or ask for fewer"
        )
    if silos is None or silos == len(distinct):
        return by_owner(owners, len(distinct))
    hand = np.empty(len(distinct), np.int64)
    for silo, dealt in enumerate(np.array_split(rng.permutation(len(distinct)), silos)):
        hand[dealt] = silo
    return by_owner(hand[owners], silos)
