"""A time limit that works even if a rank waits for another one for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

GRACE = 5
"""Seconds that other ranks wait so that rank 0 reports first; twice this is left for the thread before the
alarm."""


class TimeLimit:
    """Ends this process when the limit has passed. Make it in the main thread.

    A thread calls `late`. If a library keeps that thread from running, the kernel's alarm ends the process
    without a message.
    """

    def __init__(self, seconds: float, late: Callable[[str], None]) -> None:
        self.stage = "joining the world"
        """The current stage of the work."""
        self._late = late
        self._timer = threading.Timer(seconds, self._ring)
        self._timer.daemon = True
        self._timer.start()
        signal.alarm(int(seconds) + 2 * GRACE)

    def begin(self, stage: str) -> None:
        """Set the current stage."""
        self.stage = stage

    def end(self) -> None:
        """Cancel the limit."""
        self._timer.cancel()
        signal.alarm(0)

    def _ring(self) -> None:
        try:
            self._late(self.stage)
            sys.stdout.flush()
        finally:
            os._exit(1)  # no MPI_Finalize, which would wait for the other ranks
