"""What the wire stands on: the MPI library, the clock, and what this process asks of its system.

All of the wire asks this object and nothing else, so that tests can put a simulated world under it: many
ranks in one process, whose clock, messages and deaths follow from a seed.
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
"""Seconds in which the launcher ends its ranks."""


class Ground:
    """The ground under one rank's wire, and how that rank leaves it.

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
        """Return the time in seconds, as `time.perf_counter` has it."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Sleep, whoever may want to wake this rank."""
        time.sleep(seconds)

    def doorbell(self) -> Doorbell:
        """Return a new doorbell of this rank."""
        return Doorbell()

    def kill(self, process: int) -> None:
        """End a process of this node at once; one that is gone already is none."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    def alarm(self, seconds: float) -> None:
        """Have this process die in so many seconds; 0 to let it live."""
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def die(self) -> None:
        """End this rank by a signal, since the launcher tells nobody of a rank that exits."""
        _flush()
        self.kill(self.process)

    def mark_unresponsive(self, processes: Sequence[int | None]) -> None:
        """Remember ranks that hang, so that this one does not wait for them when it leaves.

        Args:
            processes: Theirs, None for one on another node.
        """
        self._hanging.extend(processes)

    def wait_for_exit(self, processes: Sequence[int], seconds: float) -> None:
        """Have this rank wait so long for others to leave before it leaves itself, and then end those that
        have not.

        Only where deaths end nobody else: elsewhere MPI_Finalize waits for them.
        """
        self._farewell = seconds
        for process in processes if survivable() and hasattr(os, "pidfd_open") else ():
            # it is gone, or this kernel or a container's filter does not have the call
            with contextlib.suppress(OSError):
                self._leaving.append(os.pidfd_open(process))

    def leave(self, code: int) -> NoReturn:
        """Exit; where ranks may have died or hang without MPI_Finalize, which would wait for them."""
        if self._hanging and not survivable():
            _flush()
            self.mpi.COMM_WORLD.Abort(code)  # the launcher ends them, and its exit code is this one
        self._end_hanging()
        if survivable():
            _flush()
            self._see_off()
            os._exit(code)
        sys.exit(code)

    def end_launcher(self) -> None:
        """Ask the launcher, which started this process, to end all others."""
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
        """Wait for those that `wait_for_exit` names, and end who is late."""
        until = self.clock() + self._farewell
        for process in self._leaving:
            if not select.select([process], [], [], max(until - self.clock(), 0.0))[0]:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


HERE: Ground = Ground()
"""The ground of this process, whose rank the launcher started."""
