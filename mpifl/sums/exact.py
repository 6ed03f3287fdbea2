"""Sums whose bits depend neither on the order of the summands nor on how they are grouped.

Every summand is rounded to a fixed grid before it is added. Multiples of one grid add up in float64 without
any further rounding, so order and grouping cannot matter (the pre-rounding of Rump 2009 and of Demmel &
Nguyen 2013, "Fast reproducible floating-point summation"). The grid follows from the summand's own largest
magnitude alone, coarsened to steps of 2^16, its *window*: no rank has to know another's data. Summands of one
federation mostly share one window; where they do not, each window is summed for itself and the windows are
added largest first.
"""

from __future__ import annotations

import math

from torch import Tensor

from mpifl.sums import kernels

STEP = 16
"""Width of a window in bits."""


def peak_of(vector: Tensor) -> float:
    """Return the largest magnitude in a vector in one pass, 0 for an empty one; NaN if it holds NaN."""
    return kernels.peak(vector) if vector.numel() else 0.0


def is_finite(vector: Tensor) -> bool:
    """Whether a vector holds neither NaN nor Inf. Mostly its sum says so,
    in a quarter of a peak's time in tensors."""
    return math.isfinite(float(vector.sum())) or math.isfinite(peak_of(vector))


def window_of(peak: float) -> int | None:
    """Return the window of a summand with largest magnitude `peak`:
    the least b with peak < 2^(16 b); None for 0."""
    return None if peak == 0 else -(-math.frexp(peak)[1] // STEP)


def anchor_of(window: int, summands: int) -> float:
    """Return what rounds to a window's grid, by being added and taken off, so that `summands` add up exactly.

    It rounds to multiples of 2^(16 b + bits - 52): with up to 2^bits summands below 2^(16 b), every partial
    sum is a multiple that float64 holds exactly.
    """
    bits = max(1, math.ceil(math.log2(max(summands, 1))))
    return 1.5 * 2.0 ** (STEP * window + bits)


class ExactSum:
    """The running sum of up to `summands` vectors of one length: a float64 vector for each window in use."""

    def __init__(self, length: int, summands: int) -> None:
        self.length = length
        self.windows: dict[int, Tensor] = {}
        self._summands = summands

    def add(self, vector: Tensor, weight: float, peak: float, room: Tensor | None) -> int | None:
        """Add `weight * vector`, a finite vector of largest magnitude `peak`, and return its window.

        The rounding is off by at most 2^-(37 - b) of the summand's peak, b = max(1, ceil(log2(summands))): no
        worse than float32 relative to the peak for up to 4096 summands, and mostly far better.

        Args:
            room: A float64 vector of any content for the sum of a window that has none yet.
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
