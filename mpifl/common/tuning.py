"""How this process uses memory and counts, settled before torch starts threads."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator


def keep_memory() -> None:
    """Have freed memory kept for the next vectors, and large ones lie on large pages.

    To map and clear memory anew is half of what vectors cost. The largest go back to the system all the same:
    gradients and deltas of a large model are then never held at the same time.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch's
    map_from, trim_from = (-3, 1 << 23), (-1, 1 << 27)  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, in bytes
    with contextlib.suppress(AttributeError, OSError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in (map_from, trim_from):
            mallopt(setting, value)


@contextlib.contextmanager
def subnormals_as_zero() -> Iterator[None]:
    """Have silos of one class, whose gradients soon fall below 1.2e-38, not train at a fifth of the speed for
    it.

    Threads take it over from the one that starts them, for good: torch must not have any yet.
    """
    import torch

    found = not float(torch.tensor(1e-30) * 1e-10)  # torch does not say
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(found)
