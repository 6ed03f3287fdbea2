"""How much silos differ, in one number each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Heterogeneity:
    """Label skew, as means over the silos of each one's distance to the pooled distribution,
    and size skew."""

    jensen_shannon: float
    """Mean Jensen-Shannon divergence in bits: 0 when all silos are alike, at most 1."""
    total_variation: float
    """Mean total variation distance: the share of a silo's labels that would have to move, 0 to 1."""
    gini: float
    """Gini coefficient of the training set sizes: 0 when all are equal,
    towards 1 when one silo has everything."""


def heterogeneity(counts: np.ndarray, sizes: np.ndarray | None = None) -> Heterogeneity:
    """Measure the label histograms [silos, classes] of a federation, and its sizes if an example has many
    labels; a silo without labels that count has no distance."""
    totals = counts.sum(axis=1)
    sizes = totals if sizes is None else sizes
    known = totals > 0
    shares = counts[known] / totals[known, None] if known.any() else np.zeros((1, counts.shape[1]))
    pooled = counts.sum(axis=0) / max(totals.sum(), 1)
    return Heterogeneity(
        float(jensen_shannon(shares, pooled).mean()),
        float(total_variation(shares, pooled).mean()),
        gini(sizes),
    )


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the Jensen-Shannon divergence in bits over the last axis (Lin 1991,
    eq. 4.1 with equal weights)."""
    bits = _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2
    return np.asarray(np.maximum(bits, 0.0))  # a difference of rounded entropies may come out just below 0


def total_variation(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the total variation distance over the last axis.

    It is the earth mover's distance where all labels are equally far apart; Zhao et al. (2018, sec. 3.2)
    report twice this as EMD.
    """
    return np.asarray(np.abs(p - q).sum(axis=-1) / 2)


def gini(sizes: np.ndarray) -> float:
    """Return the Gini coefficient of sizes [n]: half their mean absolute difference over their mean."""
    if sizes.sum() == 0:
        return 0.0
    ordered, n = np.sort(sizes), len(sizes)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * ordered.sum()))


def _entropy(p: np.ndarray) -> np.ndarray:
    return np.asarray(-(p * np.log2(np.where(p > 0, p, 1))).sum(axis=-1))
