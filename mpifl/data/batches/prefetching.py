"""What comes next is made while what came before is worked with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Made = TypeVar("Made")


def ahead(
    make: Callable[..., Made], given: Sequence[tuple[Any, ...]], *, by_a_thread: bool
) -> Iterator[Made]:
    """Yield what `make` makes of each, in their order.

    Args:
        make: Draws no random numbers, so that it matters not when it is called.
        given: What it is called with, each time.
        by_a_thread: Whether a thread makes the next one meanwhile. One is made ahead, and no more, so that
            memory holds two. Where there is one alone, or cores are busy, a thread brings nothing.
    """
    if not by_a_thread or len(given) < 2:
        yield from itertools.starmap(make, given)
        return
    with ThreadPoolExecutor(1, "mpifl-ahead") as thread:
        coming = thread.submit(make, *given[0])
        for one in given[1:]:
            found, coming = coming.result(), thread.submit(make, *one)
            yield found
        yield coming.result()
