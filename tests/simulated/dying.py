"""Be `mpifl ARGUMENTS` under a real MPI, but die at a moment of a schedule.

dying.py [[1, "Isend REPORT", 4]] ARGUMENTS
"""

import json
import os
import signal
import sys
from collections import Counter
from typing import Any

from mpifl.__main__ import main
from mpifl.wire.point_to_point import PointToPoint
from tests.simulated.mpi import named

moments = {tuple(moment) for moment in json.loads(sys.argv.pop(1))}
real, done = PointToPoint._started, Counter[str]()


def started(self: PointToPoint, act: Any, *arguments: Any) -> Any:
    if getattr(act, "__name__", "") == "Isend":
        what = named("Isend", arguments[-1])
        done[what] += 1
        if (int(os.environ["OMPI_COMM_WORLD_RANK"]), what, done[what]) in moments:
            os.kill(os.getpid(), signal.SIGKILL)
    return real(self, act, *arguments)


PointToPoint._started = started  # type: ignore[method-assign]
main()
