"""Which silos take part in a round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpifl.common import rng
from mpifl.run import CohortTable


def size_of(fraction: float, silos: int) -> int:
    """Return how many of so many silos take part in a round: max(C * K, 1)."""
    return max(int(fraction * silos + 1e-9), 1)


def sample(cohort: CohortTable, sizes: Sequence[int], seed: int, round: int) -> list[int]:
    """Draw the silos of a round: max(C * K, 1) of K at random (McMahan et al. 2017, Algorithm 1).

    Args:
        cohort: C, and whether a silo's chance goes by its examples.
        sizes: The training examples of silo 0, 1, 2, ...
        seed: The job's.
        round: Counted from 0.
    """
    size = size_of(cohort.fraction, len(sizes))
    chances = np.divide(sizes, sum(sizes)) if cohort.select == "examples" else None
    drawn = rng.numpy_stream(seed, "cohort", round).choice(len(sizes), size, replace=False, p=chances)
    return sorted(int(silo) for silo in drawn)
