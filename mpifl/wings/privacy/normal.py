"""Standard normal numbers, two from three random words (Box & Muller 1958).

They are computed in C, or in NumPy if there is no compiler.

Both ways give the same bits on every processor. They use only sums, products and square roots of float32,
whose rounding IEEE 754 fixes. A library's logarithm, sine and cosine differ between processors.

A pair is r cos t and r sin t, where r^2 = -2 ln u. The words, int32, give:

- u: 62 bits, from 2^-63 to 1 - 2^-63. Its distance to the nearer end, 0 or 1, is computed first, with all
  bits of a float32, so that neither end is coarse. r is between 2^-31 and `LARGEST`, sqrt(126 ln 2). True
  normal numbers would pass this limit once in 10^19 pairs.
- t: up to an eighth of a turn to either side, 2^31 values. One random bit swaps cosine and sine, another
  changes the sign. So a number and its negative have the same probability. Near zero the numbers are
  7.3e-10 r apart, and none is zero.

The polynomials minimise the largest relative error (Remez): 2.7e-8 for r^2, 4e-8 for sine and cosine. A
rounding to float32 has an error of up to 6e-8.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mpifl.common.machine import native

Floats: TypeAlias = NDArray[np.float32]
Words: TypeAlias = NDArray[np.int32]
SOURCE = Path(__file__).with_name("normal.c")
AT_A_TIME = 1 << 16
"""How many numbers are made at a time; even. Their words fit in a core's cache."""
WORDS = 3
"""Words for a pair of numbers."""
LARGEST = math.sqrt(126 * math.log(2))
"""The largest magnitude of a number, apart from rounding: 9.345."""
TWICE_LN_2 = 1.38629436
OF_LOGARITHM = (
    *(0.999990463, 0.667264223, 0.487365127, 0.527382493),
    *(-0.361907274, 2.41743422, -3.27918673, 2.82909894),
)
"""(-2 ln(1 - f) / f - 2) / f for f from 0 to 1/2; the constant coefficient comes first."""
OF_SINE = (0.785398185, -0.0807454363, 0.00249000103, -3.5950452e-05)
"""sin(pi v / 4) / v as a polynomial in v^2."""
OF_COSINE = (-0.308425128, 0.015854327, -0.000325940084, 3.53033806e-06)
"""(cos(pi v / 4) - 1) / v^2 as a polynomial in v^2."""


def words_of(count: int) -> int:
    """Return how many words `count` numbers need."""
    return WORDS * -(-count // 2)


def add(vector: Floats, words: Words, deviation: float) -> None:
    """Add normal numbers, multiplied by a deviation, to a vector.

    Args:
        vector: float32, contiguous, shape [n].
        words: Random bits, int32, contiguous, shape [WORDS * n / 2], n / 2 rounded up. The first half of the
            vector gets one number of each pair, the second half the other.
        deviation: The standard deviation, a float32.
    """
    half = len(words) // WORDS
    if (library := compiled()) is not None:
        at, shorter = vector.ctypes.data, len(vector) - half
        library.mpifl_add_normal(at, at + 4 * half, words.ctypes.data, deviation, half, shorter)
        return
    one, other = pairs(words)
    one *= np.float32(deviation)
    other *= np.float32(deviation)
    vector[:half] += one
    vector[half:] += other[: len(vector) - half]


def pairs(words: Words) -> tuple[Floats, Floats]:
    """Return n pairs of numbers from their words, as two float32 arrays of shape [n], with NumPy."""
    high, low, turn = words.reshape(WORDS, -1)
    radius = _square(high, low)
    np.sqrt(radius, out=radius)
    radius.view(np.int32)[:] ^= high & -(2**31)  # a random sign
    v = (turn | 1).astype(np.float32)  # odd: never zero, and negative as often as positive
    v *= np.float32(2.0**-31)
    y = v * v
    sine, cosine = _polynomial(OF_SINE, y), _polynomial(OF_COSINE, y)
    sine *= v
    sine *= radius
    cosine *= y
    cosine += np.float32(1.0)
    cosine *= radius
    swapped = low >> 31
    return _chosen(swapped, sine, cosine), _chosen(swapped, cosine, sine)


def _square(high: Words, low: Words) -> Floats:
    """Return r^2 = -2 ln u. Either u or 1 - u is (a whole number of 61 bits + 1/2) / 2^62.

    u = 2^-k (1 - f) with f up to 1/2, so both terms of the logarithm have the same sign and nothing cancels.
    """
    whole = (high & (2**30 - 1)).astype(np.float32)
    whole *= np.float32(2.0**31)
    below = (low & (2**31 - 1)).astype(np.float32)
    below += np.float32(0.5)
    whole += below
    bits, mirrored = whole.view(np.int32), high << 1 >> 31
    found = (188 - (bits >> 23) & ~mirrored).astype(np.float32)  # k
    found *= np.float32(TWICE_LN_2)
    left = (bits & (2**23 - 1) | 0x3F000000).view(np.float32)  # 1 - f, from 1/2 to 1
    f = _chosen(mirrored, whole * np.float32(2.0**-62), np.float32(1.0) - left)
    rest = _polynomial(OF_LOGARITHM, f)
    rest *= f
    rest += np.float32(2.0)
    rest *= f
    found += rest
    return found


def _chosen(mask: Words, one: Floats, other: Floats) -> Floats:
    """Return the numbers of `one` where the mask is -1, of `other` where it is 0; faster than `np.where`."""
    bits = one.view(np.int32) ^ other.view(np.int32)
    bits &= mask
    bits ^= other.view(np.int32)
    return bits.view(np.float32)


def _polynomial(coefficients: Sequence[float], x: Floats) -> Floats:
    """Evaluate a polynomial of 2^k coefficients by Estrin's scheme; each product and sum is rounded."""
    terms: list[Any] = [np.float32(one) for one in coefficients]
    while len(terms) > 1:
        terms = [high * x + low for low, high in zip(terms[::2], terms[1::2], strict=True)]
        x = x * x
    found: Floats = terms[0]
    return found


@functools.cache
def compiled() -> Any:
    """Return the library with the compiled loop, or None if it cannot be compiled."""
    if (library := native.library(SOURCE)) is None:
        return None
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    library.mpifl_add_normal.argtypes = [pointer, pointer, pointer, ctypes.c_float, whole, whole]
    library.mpifl_add_normal.restype = None
    return library
