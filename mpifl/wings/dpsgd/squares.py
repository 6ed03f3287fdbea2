"""Squared norms of sums whose terms may cancel: no smaller than those of the sums that float32 makes."""

from __future__ import annotations

from torch import Tensor

ROUNDING = 2.0**-22
"""More than float32 loses of a sum, for each of its terms, beside the sum of their lengths."""


def of_products(a: Tensor, g: Tensor) -> Tensor:
    """Return the squared norm of the sum over places of g a^T, by group; shapes [groups, ..., places].

    The products of two places may cancel to any part of what they are, so these are float64.
    """
    a, g = a.double(), g.double()
    lengths = (a.norm(dim=1) * g.norm(dim=1)).sum()
    return never_less(((a.mT @ a) * (g.mT @ g)).sum(), lengths, a.shape[2])


def never_less(square: Tensor, lengths: Tensor, terms: int) -> Tensor:
    """Return a squared norm, float32, with room for what float32 makes of the sum itself.

    Args:
        square: That of a sum of vectors, float64.
        lengths: The sum of their lengths.
        terms: How many they are.
    """
    return (square.clamp(min=0) + (terms * ROUNDING * lengths).square()).float()
