"""How long a party waits between two looks at a link."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

SHORTEST, LONGEST = 0.01, 1.0
"""Seconds between two looks: they grow from the first to the second."""
REMINDER = 60.0
"""Seconds of a wait after which a line says so."""


def looks(remind: Callable[[], None], until: float = math.inf, first: float = REMINDER) -> Iterator[None]:
    """Yield whenever it is time for another look at a link, at least once.

    Args:
        remind: Called once, after `first` seconds.
        until: When to end, by the monotonic clock.
    """
    pause, due = SHORTEST, time.monotonic() + first
    while True:
        yield
        now = time.monotonic()
        if now >= until:
            return
        if now >= due:
            remind()
            due = math.inf
        time.sleep(pause)
        pause = min(pause * 1.2, LONGEST)
