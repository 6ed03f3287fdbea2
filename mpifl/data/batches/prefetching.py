"""Prefetching: a thread makes the next item while the current one is used."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Made = TypeVar("Made")


def ahead(
    make: Callable[..., Made], given: Sequence[tuple[Any, ...]], *, by_a_thread: bool
) -> Iterator[Made]:
    """Yield `make(*one)` for each entry of `given`, in order.

    Args:
        make: A function that draws no random numbers, so the time of a call does not matter.
        given: The arguments of each call.
        by_a_thread: Whether a thread makes the next item meanwhile. It makes only one ahead, so memory holds
            two. A thread gains nothing for a single item, or if cores are busy.
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
