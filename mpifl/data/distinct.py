"""Different numbers that are one in float32, which a model sees."""

from __future__ import annotations

import numpy as np

NOISE = 1e-10
"""How far two numbers may lie apart, beside their size, and be the same but for how they were calculated."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""The smallest number that float32 holds with all its digits."""


def merged(numbers: np.ndarray, exact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return different numbers in order, float64 [k], and which are one with the next, bool [k - 1].

    Args:
        numbers: Finite numbers, float64 [m].
        exact: What a model is given in their place, in float32; float64 [m], in the order of `numbers`.
    """
    numbers, first = np.unique(numbers, return_index=True)
    exact = exact[first]
    apart = _apart(numbers) | _apart(exact)  # far from all others, numbers may have become one before
    return numbers, apart & (np.diff(exact.astype(np.float32)) == 0)


def check_times(times: np.ndarray) -> None:
    """Check that float32 has each time, and keeps different times apart: equal times are ties.

    Args:
        times: Finite times, [m] in any dtype.

    Raises:
        ValueError: it does not; the line says which times, and what to do.
    """
    exact = np.asarray(times, np.float64)
    small = (exact > 0) & (exact < SMALLEST)
    if small.any():
        what = f"is below {SMALLEST:.2g}, the smallest number of float32; use another unit"
        raise ValueError(f"time {_said(exact[small].min())} {what}")
    if times.dtype.kind == "f" and times.dtype.itemsize <= np.float32().itemsize:
        return
    different, one = merged(exact, exact)
    if one.any():
        nth = int(one.argmax())
        both = f"times {_said(different[nth])} and {_said(different[nth + 1])} are one in float32"
        raise ValueError(f"{both}; count from a zero nearer to them, or round times that may be equal")


def _apart(numbers: np.ndarray) -> np.ndarray:
    apart: np.ndarray = np.diff(numbers) > NOISE * np.abs(numbers[1:])
    return apart


def _said(number: float) -> str:
    return repr(float(number)).removesuffix(".0")
