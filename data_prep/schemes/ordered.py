"""The scheme that cuts along a number of each example, as age, dose or year."""

from __future__ import annotations

import numpy as np

from mpifl.common import InputError


def ordered(
    order: np.ndarray, silos: int, rng: np.random.Generator, *, strictness: float = 1.0
) -> list[np.ndarray]:
    """Sort by a number of each example and deal out neighbours; sizes differ by at most one.

    What is sorted by is s r / n + (1 - s) u: r is an example's rank, u is drawn evenly from [0, 1), and s is
    the strictness. With 1 the silos' ranges meet at their ends alone; with 0 it is `iid`.
    """
    if not 0 <= strictness <= 1:
        raise InputError(f"--strictness: {strictness} given; it must be from 0 (iid) to 1 (sorted)")
    shuffled = rng.permutation(len(order))
    rank = np.empty(len(order), np.float64)
    rank[shuffled[np.argsort(order[shuffled], kind="stable")]] = np.arange(len(order))  # ties in any order
    key = strictness * rank / max(1, len(order)) + (1 - strictness) * rng.random(len(order))
    return np.array_split(np.argsort(key, kind="stable"), silos)
