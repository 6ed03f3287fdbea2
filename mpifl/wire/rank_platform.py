"""The platform below the wire: the MPI library, the clock, and calls to the operating system.

The wire reaches all of these through this object only. So tests can put a simulated world under the wire:
many ranks in one process, whose clock, messages and deaths follow from a seed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from mpifl.wire.doorbell import Doorbell
from mpifl.wire.launching import survivable
from mpifl.wire.memory import Segment

_DAEMONS = ("prterun", "prted", "prte", "mpirun", "mpiexec")
_GRACE = 5.0
"""Seconds that the launcher gets to end its ranks."""


class Platform:
    """The platform under one rank's wire, and how that rank leaves it.

    Attributes:
        segments: Makes and opens memory that the ranks of a node share.
    """

    segments: type[Segment] = Segment

    def __init__(self) -> None:
        self._hanging: list[int | None] = []
        self._leaving: list[int] = []
        self._farewell = 0.0

    @property
    def mpi(self) -> Any:
        """The module `mpi4py.MPI`."""
        from mpi4py import MPI

        return MPI

    @property
    def process(self) -> int:
        """The number of this process."""
        return os.getpid()

    def clock(self) -> float:
        """Return the time in seconds, on the clock of `time.perf_counter`."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Sleep for the whole time; no doorbell ends this sleep."""
        time.sleep(seconds)

    def doorbell(self) -> Doorbell:
        """Return a new doorbell of this rank."""
        return Doorbell()

    def kill(self, process: int) -> None:
        """End a process of this node at once; do nothing if it is gone already."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    def alarm(self, seconds: float) -> None:
        """Let this process die after `seconds`; 0 cancels this."""
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def die(self) -> None:
        """End this rank by a signal: the launcher does not report a rank that exits."""
        _flush()
        self.kill(self.process)

    def mark_unresponsive(self, processes: Sequence[int | None]) -> None:
        """Remember ranks that hang, so that this one does not wait for them when it leaves.

        Args:
            processes: The process of each such rank; None for a rank on another node.
        """
        self._hanging.extend(processes)

    def wait_for_exit(self, processes: Sequence[int], seconds: float) -> None:
        """Let this rank, when it leaves, first wait for other processes; it ends those that are late.

        This is only for ranks that survive deaths: elsewhere MPI_Finalize waits for all ranks.

        Args:
            processes: The processes to wait for.
            seconds: How long to wait for all of them together.
        """
        self._farewell = seconds
        for process in processes if survivable() and hasattr(os, "pidfd_open") else ():
            # the process is gone, or this kernel or the container's filter does not offer the call
            with contextlib.suppress(OSError):
                self._leaving.append(os.pidfd_open(process))

    def leave(self, code: int) -> NoReturn:
        """Exit; without MPI_Finalize where ranks may have died or hang, since it would wait for them."""
        if self._hanging and not survivable():
            _flush()
            self.mpi.COMM_WORLD.Abort(code)  # the launcher ends the others and exits with this code
        self._end_hanging()
        if survivable():
            _flush()
            self._see_off()
            os._exit(code)
        sys.exit(code)

    def end_launcher(self) -> None:
        """Ask the launcher that started this process to end all ranks."""
        parent = os.getppid()
        with contextlib.suppress(OSError):
            if Path(f"/proc/{parent}/comm").read_text().strip() in _DAEMONS:
                os.kill(parent, signal.SIGTERM)
                self.sleep(_GRACE)

    def _end_hanging(self) -> None:
        for process in filter(None, self._hanging):
            self.kill(process)
        if None in self._hanging:
            self.end_launcher()

    def _see_off(self) -> None:
        """Wait for the processes that `wait_for_exit` was given, and end those that are late."""
        until = self.clock() + self._farewell
        for process in self._leaving:
            if not select.select([process], [], [], max(until - self.clock(), 0.0))[0]:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


HERE: Platform = Platform()
"""The platform of this process, which is one rank of a real MPI world."""
