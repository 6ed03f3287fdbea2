"""Settings of this process's memory and arithmetic, made before torch starts threads."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""Settings of glibc's `mallopt`; thresholds are in bytes, and a negative one is never reached."""


def keep_memory() -> None:
    """Keep freed memory for the next vectors.

    Mapping and clearing memory anew is half the cost of vectors. The largest vectors still go back to the
    system, so that gradients and deltas of a large model are never held at the same time. Torch could put
    vectors on large pages, too. No round was faster by it, and workers took up to a third more memory.
    """
    _allocate_by({_MMAP_THRESHOLD: 1 << 23, _TRIM_THRESHOLD: 1 << 27})


def keep_all_memory() -> None:
    """Keep the memory of the largest vectors, too: a rank that trains needs the same memory in each step."""
    _allocate_by({_MMAP_MAX: 0, _TRIM_THRESHOLD: -1})


def _allocate_by(settings: Mapping[int, int]) -> None:
    with contextlib.suppress(AttributeError, OSError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in settings.items():
            mallopt(setting, value)


def counts_subnormals_as_zero() -> bool:
    """Return whether this thread counts subnormal numbers as 0. Torch does not tell, and must not compute
    yet."""
    import numpy as np

    return not np.float32(1e-30) * np.float32(1e-10)


@contextlib.contextmanager
def subnormals_as_zero() -> Iterator[None]:
    """Count subnormal numbers as 0, since the processor is slow with them.

    The gradients of silos with one class soon fall below 1.2e-38; such silos would train at a fifth of the
    speed. A thread takes this setting for good from the thread that starts it, so torch must not have started
    threads yet.
    """
    import torch

    found = counts_subnormals_as_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(found)
