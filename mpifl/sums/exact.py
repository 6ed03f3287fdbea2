"""Exact sums: their bits depend neither on the order of the summands nor on their grouping.

Every summand is rounded to a fixed grid before it is added. Multiples of one grid add up in float64 without
further rounding, so order and grouping do not matter. This is the pre-rounding of Rump 2009 and of Demmel &
Nguyen 2013, "Fast reproducible floating-point summation".

The grid follows only from the summand's own largest magnitude, in steps of 2^16. Such a step is the summand's
*window*. So no rank has to know another's data. The summands of one federation mostly share one window. If
not, each window is summed by itself, and the windows are added, the largest first.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mpifl.sums import kernels

STEP = 16
"""Width of a window in bits."""


def peak_of(vector: Tensor) -> float:
    """Return the largest magnitude in a vector in one pass, 0 for an empty one; NaN if it holds NaN."""
    return kernels.peak(vector) if vector.numel() else 0.0


def is_finite(vector: Tensor) -> bool:
    """Return whether a vector holds neither NaN nor Inf.

    A finite sum shows it, in a quarter of the time that tensor operations take to find the peak.
    """
    return math.isfinite(float(vector.sum())) or math.isfinite(peak_of(vector))


def window_of(peak: float) -> int | None:
    """Return the window of a summand with largest magnitude `peak`: the least b with peak < 2^(16 b).

    Return None for 0.
    """
    return None if peak == 0 else -(-math.frexp(peak)[1] // STEP)


def anchor_of(window: int, summands: int) -> float:
    """Return the anchor of a window b: adding and subtracting it rounds a number to the window's grid.

    The grid is the multiples of 2^(16 b + bits - 52). With up to 2^bits summands below 2^(16 b), every
    partial sum is a multiple that float64 holds exactly.

    Args:
        window: b.
        summands: How many numbers are added, at most 2^bits.
    """
    return 1.5 * 2.0 ** (STEP * window + bits_of(summands))


def is_partial_sum(total: Tensor, window: int, summands: int, most: int) -> bool:
    """Return whether a vector can be the sum of some summands of a window: multiples of its grid, in range.

    Args:
        total: A float64 vector on the CPU.
        window: b; every summand is below 2^(16 b).
        summands: How many numbers are added by all, which sets the grid; see `anchor_of`.
        most: How many of them this sum has.
    """
    half = (52 - STEP * window - bits_of(summands)) / 2  # the scale itself may be beyond float64
    scales = 2.0 ** math.floor(half), 2.0 ** math.ceil(half)
    largest = most * 2.0 ** (52 - bits_of(summands))
    for piece in torch.split(total, kernels.PIECE):
        scaled = piece * scales[0] * scales[1]
        if not bool(((scaled == scaled.round()) & (scaled.abs() <= largest)).all()):
            return False
    return True


def bits_of(summands: int) -> int:
    """Return the least number of bits, at least 1, that holds as many summands."""
    return max(1, math.ceil(math.log2(max(summands, 1))))


class ExactSum:
    """The running sum of up to `summands` vectors of one length: one float64 vector for each used window."""

    def __init__(self, length: int, summands: int) -> None:
        self.length = length
        self.windows: dict[int, Tensor] = {}
        self._summands = summands

    def add(self, vector: Tensor, weight: float, peak: float, room: Tensor | None) -> int | None:
        """Add `weight * vector` and return its window.

        The rounding error is at most 2^-(37 - b) of the summand's peak, b = max(1, ceil(log2(summands))). For
        up to 4096 summands this is no worse than float32 relative to the peak, and mostly far better.

        Args:
            vector: A finite vector.
            peak: The largest magnitude in the vector.
            room: An uninitialized float64 vector for the sum, if the window has no sum yet.
        """
        window = window_of(abs(weight) * peak)
        if window is None:
            return None
        if fresh := window not in self.windows:
            assert room is not None
            self.windows[window] = room
        anchor = anchor_of(window, self._summands)
        kernels.add(self.windows[window], vector, weight, anchor, fresh=fresh)
        return window

    def take(self, window: int, total: Tensor) -> None:
        """Add the sum of a window that was made elsewhere, shape [length]; the vector itself is kept.

        The result is exact: both are multiples of the window's grid.
        """
        if window in self.windows:
            self.windows[window] += total
        else:
            self.windows[window] = total
