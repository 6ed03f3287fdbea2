"""Mixing of vectors before a rule: each row of a matrix gives the weights of silos in one mixed vector."""

from __future__ import annotations

import numpy as np

from mpifl.wings.robust.weight_rules import Matrix, squared_distances

NNM, BUCKETING = "nnm", "bucketing"
MIXINGS = ("none", NNM, BUCKETING)
"""The values of `[aggregation] pre`."""


def nearest_neighbours(gram: Matrix, liars: int) -> Matrix:
    """Return the matrix that replaces each vector by the mean of its n - f nearest, itself included; [n, n].

    Nearest-neighbour mixing (Allouah et al. 2023, "Fixing by mixing: a recipe for optimal Byzantine ML under
    heterogeneity", algorithm 2). For equal distances the vector itself comes first, then the first silo.
    """
    n = len(gram)
    distances = squared_distances(gram)
    np.fill_diagonal(distances, -1.0)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : n - liars]
    mixed = np.zeros((n, n))
    np.put_along_axis(mixed, nearest, 1 / (n - liars), axis=1)
    return mixed


def bucketing(silos: int, size: int, draw: np.random.Generator) -> Matrix:
    """Return the matrix of the means of random buckets of `size` vectors; shape [buckets, silos].

    Karimireddy et al. 2022, "Byzantine-robust learning on heterogeneous datasets via bucketing", algorithm 1.
    The last bucket takes the remaining vectors, and may be smaller.
    """
    order = draw.permutation(silos)
    buckets = [order[start : start + size] for start in range(0, silos, size)]
    mixed = np.zeros((len(buckets), silos))
    for row, bucket in zip(mixed, buckets, strict=True):
        row[bucket] = 1 / len(bucket)
    return mixed
