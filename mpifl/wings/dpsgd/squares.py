"""Squared norms of sums whose terms may cancel: never smaller than the norm of the sum in float32."""

from __future__ import annotations

from torch import Tensor

ROUNDING = 2.0**-22
"""A bound on the rounding error of a float32 sum: for each term, this times the sum of the terms' norms."""


def of_products(a: Tensor, g: Tensor) -> Tensor:
    """Return the squared norm of the sum over places of g a^T, by group; shapes [groups, ..., places].

    Products of different places may cancel almost wholly, so the computation is in float64.
    """
    a, g = a.double(), g.double()
    lengths = (a.norm(dim=1) * g.norm(dim=1)).sum()
    return never_less(((a.mT @ a) * (g.mT @ g)).sum(), lengths, a.shape[2])


def never_less(square: Tensor, lengths: Tensor, terms: int) -> Tensor:
    """Return a squared norm in float32, enlarged by the rounding error that a float32 sum may have.

    Args:
        square: The squared norm of a sum of vectors, float64.
        lengths: The sum of the vectors' norms.
        terms: How many vectors there are.
    """
    return (square.clamp(min=0) + (terms * ROUNDING * lengths).square()).float()
