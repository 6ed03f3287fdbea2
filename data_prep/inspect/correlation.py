"""How much the columns of two silos have to do with each other, in one number a pair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST_ROWS = 2048
"""Rows that are looked at, evenly spaced."""
MOST_COLUMNS = 4096
"""Columns of all silos; of more, nothing is said."""


def correlations(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return Pcor of every pair of silos, [silos, silos], from their columns [n, d_k] of the same rows.

    Pcor(i, j) is the standard deviation of the singular values of C_ij, over the root of how many they are;
    C_ij has Spearman's correlations of the columns of i with those of j. It is 0 where all singular values
    are alike, as of independent columns with themselves, and towards 1 where one direction has everything. Of
    a single column it is 0. (VertiBench, Wu, Hou and He 2024, as their `CorrelationEvaluator` has it.)
    """
    ranked = [_standardised(_ranks(one)) for one in columns]
    found = np.zeros((len(ranked), len(ranked)))
    for i, one in enumerate(ranked):
        for j, other in enumerate(ranked[: i + 1]):
            found[i, j] = found[j, i] = _spread(one.T @ other / len(one))
    return found


def icor(found: np.ndarray) -> float:
    """Return how much more silos correlate with others than within: the mean over i and j != i of Pcor(i, j)
    - Pcor(i, i); 0 of one silo."""
    if len(found) < 2:
        return 0.0
    others = (found.sum(axis=0) - np.diag(found)) / (len(found) - 1)
    return float((others - np.diag(found)).mean())


def sample(x: np.ndarray) -> np.ndarray:
    """Return some rows of x [n, ...], flattened: the same of every array of n rows."""
    chosen = x[:: max(1, -(-len(x) // MOST_ROWS))]
    return chosen.reshape(len(chosen), -1)


def _spread(correlated: np.ndarray) -> float:
    values = np.linalg.svd(correlated, compute_uv=False)
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _ranks(x: np.ndarray) -> np.ndarray:
    """Return the ranks of the rows in each column; equal values share the mean of theirs."""
    ranks = np.empty(x.shape)
    for at, column in enumerate(x.T):
        _, place, counts = np.unique(column, return_inverse=True, return_counts=True)
        ranks[:, at] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def _standardised(x: np.ndarray) -> np.ndarray:
    """Return columns of mean 0 and deviation 1; a column that does not vary is 0."""
    deviation = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(deviation > 0, deviation, 1))
