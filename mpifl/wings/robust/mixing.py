"""Mixing vectors before a rule sees them: each row of a matrix says of which silos' vectors a mixed one is
the mean."""

from __future__ import annotations

import numpy as np

from mpifl.wings.robust.weight_rules import Matrix, squared_distances

NNM, BUCKETING = "nnm", "bucketing"
MIXINGS = ("none", NNM, BUCKETING)
"""What `[aggregation] pre` may be."""


def nearest_neighbours(gram: Matrix, liars: int) -> Matrix:
    """Replace each vector by the mean of the n - f that are nearest to it, itself among them; shape [n, n].

    Nearest-neighbour mixing (Allouah et al. 2023, "Fixing by mixing: a recipe for optimal Byzantine ML under
    heterogeneity", algorithm 2). Of equal distances the first silo's counts, after the vector itself.
    """
    n = len(gram)
    distances = squared_distances(gram)
    np.fill_diagonal(distances, -1.0)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : n - liars]
    mixed = np.zeros((n, n))
    np.put_along_axis(mixed, nearest, 1 / (n - liars), axis=1)
    return mixed


def bucketing(silos: int, size: int, draw: np.random.Generator) -> Matrix:
    """Put the vectors into buckets of `size` at random, and take the mean of each; shape [buckets, silos].

    Karimireddy et al. 2022, "Byzantine-robust learning on heterogeneous datasets via bucketing", algorithm 1.
    The last bucket is the mean of as many as are left.
    """
    order = draw.permutation(silos)
    buckets = [order[start : start + size] for start in range(0, silos, size)]
    mixed = np.zeros((len(buckets), silos))
    for row, bucket in zip(mixed, buckets, strict=True):
        row[bucket] = 1 / len(bucket)
    return mixed
