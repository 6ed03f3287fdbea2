"""Features as a model sees them, in float32: which of their values it cannot see."""

from __future__ import annotations

import numpy as np

LARGEST = float(np.finfo(np.float32).max)
SMALLEST = float(np.finfo(np.float32).tiny)


def all_seen(x: np.ndarray, scale: float | None = None, offset: float = 0.0) -> bool:
    """Tell whether all values are finite numbers to a model, which receives float32 `x * scale + offset`."""
    if x.dtype.kind != "f" or not x.size:
        return True
    bound = (LARGEST - abs(offset)) / max(1.0, abs(scale or 1.0))
    if x.dtype == np.float16:  # whose largest is found slowly: a sum is finite unless a term is not
        most = float(np.finfo(x.dtype).max) if np.isfinite(x.sum(dtype=np.float64)) else np.inf
    else:
        most = float(max(x.max(), -x.min()))  # NaN where there is one
    return most <= bound or not unseen(x, scale, offset).any()


def unseen(x: np.ndarray, scale: float | None = None, offset: float = 0.0) -> np.ndarray:
    """Return which values are none to a model, in the shape of `x`: NaN, infinite, or beyond float32."""
    with np.errstate(all="ignore"):
        seen = x.astype(np.float32)
        if scale is not None:
            seen = seen * np.float32(scale) + np.float32(offset)
    return ~np.isfinite(seen)
