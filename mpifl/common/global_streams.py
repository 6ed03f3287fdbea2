"""The global random streams of numpy and of Python, which a user's model may draw from, as derived ones."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

_OURS: list[np.random.MT19937] = []
"""What numpy's functions are lent, made once: to read and write a state takes 80 us, to change places 1."""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have both streams begin by a seed, and put them back.

    Of numpy's the second number of a pair of normal ones that was drawn before is lost.
    """
    ours = _OURS.pop() if _OURS else np.random.MT19937(0)
    streams: Any = np.random  # which numpy says little of
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
    """Return where both streams are: what draws from one changes it."""
    streams: Any = np.random
    name, words, *rest = streams.get_state()
    return name, words.tobytes(), *rest, random.getstate()
