"""How a command ends: its exit code, its last line, and what it takes along.

What is wrong with a job is one line and exit code 2; a fault of the program ends every rank.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import termios
import time
import traceback
from array import array
from collections.abc import Callable
from pathlib import Path

import typer

from mpifl.common import DeviceLost, InputError, Misled, RoundLost, StartLost, one_line, written_after
from mpifl.common.machine import signals

WRONG, TOO_FEW, CUT_OFF, GOING, INTERRUPTED = 2, 3, 4, 5, 75
"""Exit codes: the job, a shard or an argument is wrong; too few silos answered; the launcher ended early;
a run that was looked at is going on; stopped by a signal. The third and the last: resume me."""

_OURS = {0, 1, WRONG, TOO_FEW, CUT_OFF, GOING, INTERRUPTED}
_FIRST = 10.0
"""Seconds in which the first rank ends the others."""
_UsageError: type[Exception] = typer.BadParameter.__base__  # type: ignore[assignment]  # click's, or typer's copy of it
_speaks: list[Callable[[], bool]] = [lambda: rank() == "0"]
"""Whether this rank tells the user; the last holds: another may become the server."""


def speak_if(speaks: Callable[[], bool]) -> None:
    """Let this rank tell the user what is wrong whenever this says so."""
    _speaks[1:] = [speaks]


def code_of_launched(launch: Callable[[], int], run: Path) -> int:
    """Return the exit code of a training, given what launches it; say how to go on where ranks could not.

    That is the launcher's where rank 0 left none, and not to be trusted: it is 0 when a node is lost, too,
    and Hydra's is the number of the signal that a rank died of.
    """
    before = _taken(run)
    code = launch()
    whole = written_after(run / "model.safetensors", run / "job.toml")  # since the run folder was last taken
    if code in _OURS and (code or whole):
        return code
    begun = _taken(run) != before
    if signals.pending() and not begun:  # it may have killed ranks that did not listen yet
        _say("stopped by a signal before the training began; run the same command again")
        return INTERRUPTED
    _say(f"error: {run}: {_cut_off(run, code, begun=begun)}")
    return code if code > 128 else CUT_OFF


def _taken(run: Path) -> int | None:
    """Return when a training last took a run folder, which is when it wrote the job there."""
    try:
        return (run / "job.toml").stat().st_mtime_ns
    except OSError:
        return None


def _cut_off(run: Path, code: int, *, begun: bool) -> str:
    """Say how a launched training ended that did not come to its end, and what to do."""
    if not begun:
        return f"the launcher ended ({code}) before the training began; run the same command again"
    from mpifl.run.folder import checkpoint

    died = "ranks died, and the training ended with them"
    if checkpoint.committed(run):
        return f"{died}; go on with --resume"
    return f"{died} before the first checkpoint; start anew with --resume"


def run(app: typer.Typer) -> int:
    """Run a command and return its exit code; what went wrong is told."""
    try:
        return int(app(standalone_mode=False) or 0)
    except (InputError, RoundLost) as error:
        _end_with(f"error: {one_line(error)}")
        return WRONG if isinstance(error, InputError) else TOO_FEW
    except _UsageError as error:
        if rank() == "0":
            error.show()  # type: ignore[attr-defined]
        return WRONG
    except typer.Abort:
        return 130
    except DeviceLost as lost:
        _end_alone(lost)
        _end_all()
        return 1
    except Misled as misled:
        _end_alone(misled)
        _take_along()
        return 1
    except StartLost as lost:
        _end_unmet(lost)
        return CUT_OFF
    except Exception as error:
        if wing := _missing_wing(error):
            _end_without(wing)
            return WRONG
        _end_all()
        return 1


def _end_without(wing: str) -> None:
    """Say that a wing is not there, and take the other ranks along, which may have it and wait."""
    told = f"the wing '{wing}' is not here, and this command needs it"
    if not _speaks[-1]() and "mpi4py.MPI" in sys.modules:
        print(f"rank {rank()}: {told}", file=sys.stderr, flush=True)
    _end_with(f"error: {told}")
    _take_along()


def _missing_wing(error: Exception) -> str:
    """Return the wing whose folder was imported and is not there; "" after any other error."""
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    room, _, wing = name.rpartition(".")
    return wing if room == "mpifl.wings" else ""


def leave(code: int) -> None:
    """Leave the exit code to whoever started the ranks, if this is rank 0, and end."""
    if "mpi4py.MPI" in sys.modules:
        from mpifl.wire.launching import leave, leave_code

        if _speaks[-1]():
            leave_code(code)
        leave(code)
    sys.exit(code)


def _say(line: str) -> None:
    if _speaks[-1]():
        print(line, file=sys.stderr, flush=True)


def _end_with(line: str) -> None:
    if _speaks[-1]():
        from mpifl.wire.launching import last_word

        last_word(line)


def rank() -> str:
    """Return this rank, as its launcher tells it; `0` without one."""
    # the last is 0 in a batch script, too
    names = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
    return next((os.environ[name] for name in names if name in os.environ), "0")


def _end_all() -> None:
    """Print this rank's traceback and take the other ranks, which may be waiting for this one, along."""
    print(f"rank {rank()} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
    _take_along()


def _take_along() -> None:
    if "mpi4py.MPI" in sys.modules:
        from mpifl.wire.launching import abort_world, leave_code

        leave_code(1)
        _await_reader(2, 1)
        abort_world(1)


def _end_alone(lost: DeviceLost | Misled) -> None:
    """Say what ends this rank, and end it where MPI survives deaths: the others go on without it."""
    from mpifl.wire.launching import die

    print(f"rank {rank()}: {one_line(lost)}", file=sys.stderr, flush=True)
    die()


def _end_unmet(lost: StartLost) -> None:
    """Say that a rank has died too early, and end all; another than the first waits for that one to do so."""
    from mpifl.wire.launching import abort_world, last_word

    if not lost.speaks:
        time.sleep(_FIRST)
    last_word(f"error: {lost}")
    abort_world(CUT_OFF)


def _await_reader(descriptor: int, seconds: float) -> None:
    """Wait until what was written into a pipe has been read:
    a launcher's word on the abort would stand amid it."""
    unread, deadline = array("i", [1]), time.monotonic() + seconds
    with contextlib.suppress(OSError):  # closed, or a system that cannot tell
        while unread[0] and stat.S_ISFIFO(os.fstat(descriptor).st_mode) and time.monotonic() < deadline:
            fcntl.ioctl(descriptor, termios.FIONREAD, unread)
            time.sleep(0.001)
