"""A time limit that holds even where a rank waits for another for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

GRACE = 5
"""Seconds that other ranks give rank 0 to speak first, and that a thread gets that may not be let run."""


class TimeLimit:
    """Ends this process when the limit has passed; to be made in the main thread.

    A thread calls `late`. Where a library does not let it run, the kernel's alarm ends the process without a
    word.
    """

    def __init__(self, seconds: float, late: Callable[[str], None]) -> None:
        self.stage = "joining the world"
        """What is being done."""
        self._late = late
        self._timer = threading.Timer(seconds, self._ring)
        self._timer.daemon = True
        self._timer.start()
        signal.alarm(int(seconds) + 2 * GRACE)

    def begin(self, stage: str) -> None:
        """Say what is done now."""
        self.stage = stage

    def end(self) -> None:
        """Let the process live on."""
        self._timer.cancel()
        signal.alarm(0)

    def _ring(self) -> None:
        try:
            self._late(self.stage)
            sys.stdout.flush()
        finally:
            os._exit(1)  # no MPI_Finalize, which would wait for the others
