"""Numbers as whole numbers modulo 2^64: their sum has the same bits in any order, and with masks.

An update's vectors lie on one grid for the whole run, fine enough for float32. Numbers of any size, such as
sums of losses, are written as digits, which keep all of float64's bits between 2^-100 and 2^99.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mpifl.sums import kernels

BITS = 62
"""The magnitude of a sum stays below 2^BITS."""
DIGITS, BASE, LOWEST = 5, 40, -100
"""How many digits a number has, how many bits a digit has, and the exponent of the lowest digit's unit."""
LARGEST_NUMBER = 2.0 ** (DIGITS * BASE + LOWEST - 1)
"""Numbers that are written as digits must be smaller than this."""


def grid_of(largest: float, summands: int) -> float:
    """Return the spacing of a grid: 2^(r - 62 + B).

    Each summand becomes a whole number of at most 2^(62 - B), so the sum of 2^B summands is at most 2^62.

    Args:
        largest: The largest magnitude of a weighted element; 2^r is the next power of two, or equal.
        summands: How many summands there are; 2^B is the next power of two, or equal, at least 2.
    """
    return 2.0 ** (_log2(largest) - BITS + _log2(max(summands, 2)))


def _log2(number: float) -> int:
    """Return the least b with 2^b >= number > 0."""
    mantissa, exponent = math.frexp(number)
    return exponent - 1 if mantissa == 0.5 else exponent


def add_to(total: Tensor, vector: Tensor, scale: float) -> None:
    """Add scale * vector in place, each element rounded to a whole number, ties to even.

    Args:
        total: The sum so far, int64, shape [n].
        vector: The summand, float32 or float64 on the CPU, shape [n].
        scale: The summand's weight, divided by the grid spacing.
    """
    kernels.add_rounded(total, vector, scale)


def digits_of(numbers: Tensor) -> Tensor:
    """Return numbers as digits, the lowest first: int64, shape [n, DIGITS].

    Args:
        numbers: float64, shape [n], each below `LARGEST_NUMBER`; bits below 2^LOWEST are cut off.
    """
    left, found = numbers.clone(), torch.empty(len(numbers), DIGITS, dtype=torch.int64)
    for nth in reversed(range(DIGITS)):
        unit = 2.0 ** (LOWEST + BASE * nth)
        found[:, nth] = (left / unit).trunc_()
        left -= found[:, nth].double() * unit  # exact: it removes the leading bits
    return found


def numbers_of(digits: Tensor) -> Tensor:
    """Return the numbers, float64 of shape [n], for sums of digits of shape [n, DIGITS].

    Whole numbers below 2^53 are exact.
    """
    carried = _carried(digits)
    negative = carried[:, -1] < 0
    carried[negative] = _carried(-digits[negative])
    units = [2.0 ** (LOWEST + BASE * nth) for nth in range(DIGITS)]
    found = torch.zeros(len(digits), dtype=torch.float64)
    for nth in reversed(range(DIGITS)):
        found += carried[:, nth].double() * units[nth]
    return torch.where(negative, -found, found)


def _carried(digits: Tensor) -> Tensor:
    """Return the same numbers with all digits but the highest in [0, 2^BASE)."""
    found = digits.clone()
    for nth in range(DIGITS - 1):
        found[:, nth + 1] += found[:, nth] >> BASE
        found[:, nth] &= (1 << BASE) - 1
    return found
