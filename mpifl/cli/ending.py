"""The end of a command: its exit code, its last line, and the end of the other ranks.

A fault of a job is one line and exit code 2. A fault of the program ends every rank.
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
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from mpifl.common import (
    DeviceLost,
    InputError,
    Misled,
    RoundLost,
    StartLost,
    one_line,
    own_mistake,
    written_after,
)
from mpifl.common.machine import debugging, signals

WRONG, TOO_FEW, CUT_OFF, GOING, INTERRUPTED = 2, 3, 4, 5, 75
"""Exit codes: the job, a shard or an argument is wrong; too few silos answered; the launcher ended early; the
watched run still goes on; stopped by a signal. After the third and the last, resume the run."""

_OURS = {0, 1, WRONG, TOO_FEW, CUT_OFF, GOING, INTERRUPTED}
_FIRST = 10.0
"""Seconds in which the first rank should end the others."""
_UsageError: type[Exception] = typer.BadParameter.__base__  # type: ignore[assignment]  # click's, or typer's copy of it
_speaks: list[Callable[[], bool]] = [lambda: rank() == "0"]
"""Whether this rank prints messages for the user. The last entry counts, since another rank may become the
server."""


def speak_if(speaks: Callable[[], bool]) -> None:
    """Let this rank print messages for the user whenever `speaks` returns True."""
    _speaks[1:] = [speaks]


def code_of_launched(launch: Callable[[], int], run: Path) -> int:
    """Launch a training and return its exit code. If the ranks could not, say how to continue.

    If rank 0 left no code, the launcher's own code is unreliable. It may be 0 after a lost node, and Hydra
    returns the number of the signal that killed a rank.
    """
    before = _taken(run)
    code = launch()
    whole = written_after(
        run / "model.safetensors", run / "job.toml"
    )  # since the run folder was last claimed
    if code in _OURS and (code or whole):
        return code
    begun = _taken(run) != before
    if signals.pending() and not begun:  # it may have killed ranks that did not handle signals yet
        _say("stopped by a signal before the training began; run the same command again")
        return INTERRUPTED
    _say(f"error: {run}: {_cut_off(run, code, begun=begun)}")
    return code if code > 128 else CUT_OFF


def _taken(run: Path) -> int | None:
    """Return when a training last claimed a run folder, which is when it wrote job.toml."""
    try:
        return (run / "job.toml").stat().st_mtime_ns
    except OSError:
        return None


def _cut_off(run: Path, code: int, *, begun: bool) -> str:
    """Return how a launched training was cut off, and what to do."""
    if not begun:
        return f"the launcher ended ({code}) before the training began; run the same command again"
    from mpifl.run.folder import checkpoint

    died = "ranks died, and the training ended with them"
    if checkpoint.committed(run):
        return f"{died}; continue with --resume"
    return f"{died} before the first checkpoint; start again with --resume"


def run(app: typer.Typer) -> int:
    """Run a command, print its error if it fails, and return its exit code."""
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
        if (said := own_mistake(error)) and not debugging():
            _end_own(said)
        else:
            _end_all()
        return 1


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """Exit with INTERRUPTED if a round is lost after a signal came: silos may be hours away, and nobody waits
    for them then."""
    try:
        yield
    except RoundLost as lost:
        if not signals.pending():
            raise
        _end_with(f"stopped by a signal: {one_line(lost)}")
        raise typer.Exit(INTERRUPTED) from None


def _end_without(wing: str) -> None:
    """Report a missing wing, and end the other ranks, which may have the wing and wait."""
    told = f"the wing '{wing}' is not here, and this command needs it"
    if not _speaks[-1]() and "mpi4py.MPI" in sys.modules:
        print(f"rank {rank()}: {told}", file=sys.stderr, flush=True)
    _end_with(f"error: {told}")
    _take_along()


def _missing_wing(error: Exception) -> str:
    """Return the wing whose import failed because its folder is missing; "" for any other error."""
    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    room, _, wing = name.rpartition(".")
    return wing if room == "mpifl.wings" else ""


def leave(code: int) -> None:
    """Exit; rank 0 also leaves the exit code to the process that started the ranks."""
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
    """Return this rank's number from its launcher; `0` without a launcher."""
    # the last one is 0 also in a batch script
    names = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
    return next((os.environ[name] for name in names if name in os.environ), "0")


def _end_all() -> None:
    """Print this rank's traceback, and end the other ranks, which may wait for this one."""
    print(f"rank {rank()} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
    _take_along()


def _end_own(said: str) -> None:
    """Report a mistake in the user's own code in one line, and end the other ranks."""
    line = f"{said}; MPIFL_DEBUG=1 shows the traceback"
    if _speaks[-1]():
        _end_with(f"error: {line}")
    else:
        print(f"rank {rank()}: error: {line}", file=sys.stderr, flush=True)
    _take_along()


def _take_along() -> None:
    if "mpi4py.MPI" in sys.modules:
        from mpifl.wire.launching import abort_world, leave_code

        leave_code(1)
        _await_reader(2, 1)
        abort_world(1)


def _end_alone(lost: DeviceLost | Misled) -> None:
    """Report what ends this rank, and end it. If MPI survives deaths, the other ranks continue without it."""
    from mpifl.wire.launching import die

    print(f"rank {rank()}: {one_line(lost)}", file=sys.stderr, flush=True)
    die()


def _end_unmet(lost: StartLost) -> None:
    """Report that a rank has died too early, and end all ranks. Ranks other than the first give it time to do
    so."""
    from mpifl.wire.launching import abort_world, last_word

    if not lost.speaks:
        time.sleep(_FIRST)
    last_word(f"error: {lost}")
    abort_world(CUT_OFF)


def _await_reader(descriptor: int, seconds: float) -> None:
    """Wait until the written part of a pipe has been read; otherwise a launcher's message on the abort could
    land in its middle."""
    unread, deadline = array("i", [1]), time.monotonic() + seconds
    with contextlib.suppress(OSError):  # closed, or a system that cannot tell
        while unread[0] and stat.S_ISFIFO(os.fstat(descriptor).st_mode) and time.monotonic() < deadline:
            fcntl.ioctl(descriptor, termios.FIONREAD, unread)
            time.sleep(0.001)
