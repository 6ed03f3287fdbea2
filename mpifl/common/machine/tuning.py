"""How this process uses memory and counts, settled before torch starts threads."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Mapping

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""Settings of glibc's `mallopt`; thresholds are in bytes, a negative one is never reached."""


def keep_memory() -> None:
    """Have freed memory kept for the next vectors, and large ones lie on large pages.

    To map and clear memory anew is half of what vectors cost. The largest go back to the system all the same:
    gradients and deltas of a large model are then never held at the same time.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch's
    _allocate_by({_MMAP_THRESHOLD: 1 << 23, _TRIM_THRESHOLD: 1 << 27})


def keep_all_memory() -> None:
    """Have the largest vectors kept, too: a rank that trains makes and drops as many of them in each step."""
    _allocate_by({_MMAP_MAX: 0, _TRIM_THRESHOLD: -1})


def _allocate_by(settings: Mapping[int, int]) -> None:
    with contextlib.suppress(AttributeError, OSError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in settings.items():
            mallopt(setting, value)


@contextlib.contextmanager
def subnormals_as_zero() -> Iterator[None]:
    """Have silos of one class, whose gradients soon fall below 1.2e-38, not train at a fifth of the speed for
    it.

    Threads take it over from the one that starts them, for good: torch must not have any yet.
    """
    import numpy as np
    import torch

    found = not np.float32(1e-30) * np.float32(1e-10)  # torch does not say, and is not to compute yet
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(found)
