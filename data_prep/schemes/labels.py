"""The schemes with label skew (Dirichlet, shards, ...): silos see few labels, or all in odd proportions."""

from __future__ import annotations

import numpy as np

from data_prep.schemes.grouping import (
    DRAWS,
    check_positive,
    deal,
    histogram,
    out_of_reach,
    sorted_by_label,
    whole,
)
from mpifl.common import InputError


def shards(
    labels: np.ndarray, silos: int, rng: np.random.Generator, *, shards_per_silo: int = 2
) -> list[np.ndarray]:
    """Sort by label, cut into equal shards and deal each silo the same number of them (McMahan et al. 2017,
    sec. 3).

    Where the examples do not divide, shard sizes differ by one.
    """
    histogram(labels)
    if shards_per_silo < 1:
        raise InputError(f"--shards-per-silo: {shards_per_silo} given; it must be 1 or more")
    if len(labels) < (count := silos * shards_per_silo):
        raise InputError(
            f"--shards-per-silo: {len(labels)} examples cannot fill {count} shards; ask for fewer"
        )
    pieces = np.array_split(np.argsort(labels, kind="stable"), count)
    hands = rng.permutation(count).reshape(silos, shards_per_silo)
    return [np.concatenate([pieces[shard] for shard in hand]) for hand in hands]


def dirichlet(
    labels: np.ndarray, silos: int, rng: np.random.Generator, *, alpha: float = 0.5, min_examples: int = 10
) -> list[np.ndarray]:
    """Spread every class over the silos in proportions drawn from Dir(alpha).

    Yurochkin et al. (2019); Li et al. (2022, NIID-Bench, sec. 4.2.1). Hsu et al. (2019) draw something else:
    one mixture of classes for each silo, and all silos of one size.

    The whole draw is repeated, up to 100 times, until every silo has `min_examples`. (The code of Li et al.
    also gives no more of a class to a silo that has its fair share of examples already; that is another
    distribution.)
    """
    check_positive("alpha", alpha)
    counts = _draw_counts(histogram(labels), silos, rng, alpha, min_examples)
    return deal(sorted_by_label(labels, rng), counts)


def _draw_counts(
    sizes: np.ndarray, silos: int, rng: np.random.Generator, alpha: float, min_examples: int
) -> np.ndarray:
    """Draw how many examples of each class [classes] every silo gets, int [classes, silos]."""
    best = 0
    for _ in range(DRAWS):
        shares = rng.dirichlet(np.full(silos, alpha), size=len(sizes))
        counts = whole(shares, sizes)
        best = max(best, smallest := int(counts.sum(axis=0).min()))
        if smallest >= min_examples:
            return counts
    raise out_of_reach(f"--alpha {alpha}", best, min_examples)
