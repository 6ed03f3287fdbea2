"""The schemes with size skew alone: silos hold more or fewer examples, of the same distribution."""

from __future__ import annotations

import numpy as np

from data_prep.schemes.grouping import DRAWS, check_positive, out_of_reach, whole


def quantity(
    labels: np.ndarray, silos: int, rng: np.random.Generator, *, alpha: float = 0.5, min_examples: int = 10
) -> list[np.ndarray]:
    """Deal shuffled examples in shares q ~ Dir(alpha) of all of them (Li et al. 2022, NIID-Bench, sec. 4.4).

    The whole draw is repeated, up to 100 times, until every silo has `min_examples`.
    """
    best = 0
    for _ in range(DRAWS):
        counts = whole(quantity_shares(silos, rng, alpha=alpha)[None], np.array([len(labels)]))[0]
        best = max(best, smallest := int(counts.min()))
        if smallest >= min_examples:
            return _deal_shuffled(counts, rng)
    raise out_of_reach(f"--alpha {alpha}", best, min_examples)


def quantity_shares(silos: int, rng: np.random.Generator, *, alpha: float = 0.5) -> np.ndarray:
    """Draw the silos' shares of all examples from Dir(alpha)."""
    check_positive("alpha", alpha)
    return rng.dirichlet(np.full(silos, alpha))


def power_law(
    labels: np.ndarray, silos: int, rng: np.random.Generator, *, exponent: float = 1.0
) -> list[np.ndarray]:
    """Deal shuffled examples in sizes that fall as a power of the silo's rank: n_k = n k^-a / sum_j j^-a, k =
    1..K.

    Sizes by a power law are those of Li et al. (2020, FedProx, sec. 5.1), who do not print theirs; this is
    Zipf's law of rank and size. Silo 0 is the largest. Whole examples differ from the formula by less than
    one.
    """
    shares = power_law_shares(silos, rng, exponent=exponent)
    return _deal_shuffled(whole(shares[None], np.array([len(labels)]))[0], rng)


def power_law_shares(silos: int, rng: np.random.Generator, *, exponent: float = 1.0) -> np.ndarray:
    """Return the silos' shares of all examples by rank; nothing is drawn."""
    check_positive("exponent", exponent)
    sizes = np.arange(1, silos + 1, dtype=np.float64) ** -exponent
    return np.asarray(sizes / sizes.sum())


def _deal_shuffled(counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Shuffle all examples and deal these counts [silos] of them."""
    return np.split(rng.permutation(counts.sum()), np.cumsum(counts)[:-1])
