"""Seeds for the global random streams of numpy and Python, from which a user's model may draw."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

_OURS: list[np.random.MT19937] = []
"""A generator for numpy's functions, made once: exchanging generators takes 1 us, copying states 80 us."""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed both streams for the context, and restore them afterwards.

    One thing is not restored: numpy draws normal numbers in pairs, and a waiting second number is lost.
    """
    ours = _OURS.pop() if _OURS else np.random.MT19937(0)
    streams: Any = np.random  # numpy hardly documents these functions
    theirs, state = streams.get_bit_generator(), random.getstate()
    streams.set_bit_generator(ours)
    try:
        streams.seed(seed % 2**32)
        random.seed(seed)
        yield
    finally:
        streams.set_bit_generator(theirs)
        random.setstate(state)
        _OURS.append(ours)


def places() -> tuple[object, ...]:
    """Return the states of both streams; a draw from one of them changes its state."""
    streams: Any = np.random
    name, words, *rest = streams.get_state()
    return name, words.tobytes(), *rest, random.getstate()
