"""What a model multiplies stored numbers by, as users write it."""

from __future__ import annotations

import math

from data_prep.dataset import LARGEST, SMALLEST
from mpifl.common import InputError


def scale_of(given: str, option: str = "--option: scale=") -> float | None:
    """Return what a model multiplies features by: a number, or a quotient of two; None if none is given.

    `option` is what messages call it.
    """
    if not given:
        return None
    above, _, below = given.partition("/")
    try:
        scale = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        scale = math.nan
    if not 0 < scale < math.inf:
        raise InputError(f"{option}{given} given; it must be a number above 0, such as 1/255")
    if not SMALLEST <= scale <= LARGEST:
        raise InputError(f"{option}{given} given; float32 has {SMALLEST:.3g} to {LARGEST:.3g}")
    return scale
