"""Imports without garbage collection: imported objects stay until a command ends, so none is garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def gc_frozen() -> Iterator[None]:
    """Import with the garbage collector off, and then hide all objects from it for good.

    Torch brings hundreds of thousands of objects. Python would search them for cycles while they come, and
    again when it ends. For a rank that does little else this is a quarter of its time. This is for programs,
    not for libraries: it also keeps all garbage that existed before.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
