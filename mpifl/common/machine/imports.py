"""What a command imports stays until it ends: none of it is garbage,
and Python need not look for any there."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def gc_frozen() -> Iterator[None]:
    """Import with the garbage collector off, and hide what there is then from it for good.

    Torch brings hundreds of thousands of objects. To search them for cycles while they come, and once more
    when the interpreter ends, is a quarter of the time of a rank that has little else to do. For programs: it
    holds on to whatever garbage there was before.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
