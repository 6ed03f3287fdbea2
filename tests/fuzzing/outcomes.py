"""What becomes of one input: a value, the documented error,
or what must not be: a traceback, a hang, too much."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

PATIENCE = 20.0
"""Seconds that one input may take; they take milliseconds, on a machine that does other things too."""
MOST_MEMORY = 512
"""MiB that reading one small input may add to what the process holds,
or that a process may hold that it starts."""
GOOD = ("value", "documented")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Kind:
    """One kind of input.

    Attributes:
        make: (draw, valid artefacts, an empty folder) -> the input: what is read, or where in the folder it
            lies.
        read: Reads it; whatever it returns is a value.
        documented: What it may raise.
        cost: How many times as long as others an input takes; the suite tries as many fewer.
    """

    make: Callable[[Random, Path, Path], Any]
    read: Callable[[Any], object]
    documented: tuple[type[BaseException], ...]
    cost: int = 1


class Undocumented(Exception):
    """A value, an exit code or a line that is not one of those that the documentation knows."""


class Hung(BaseException):
    """Time is up; no reader may take it for an error of its own."""


@dataclass(frozen=True)
class Outcome:
    """What became of an input; `where` and `what` tell the place and the words of what must not be."""

    name: str
    where: str = ""
    what: str = ""
    mib: float = 0.0
    """The peak of memory above what the process held before, or that of a child."""

    @property
    def good(self) -> bool:
        return self.name in GOOD


def outcome_of(kind: Kind, given: Any, patience: float = PATIENCE) -> Outcome:
    """Have one input read."""
    _fresh_peak()
    before, children, living = _kib(RUSAGE_SELF), _kib(RUSAGE_CHILDREN), _living()
    name, where, what = "value", "", ""
    try:
        with limit(patience), contextlib.redirect_stdout(_Unicode()):
            kind.read(given)
    except kind.documented as error:
        name, what = "documented", type(error).__name__
    except Hung as error:
        name, where = "hang", place_of(error)
    except Undocumented as error:
        name, where, what = "traceback", place_in(str(error)), f"Undocumented: {str(error)[-500:]}"
    except Exception as error:
        name, where, what = "traceback", place_of(error), f"{type(error).__name__}: {str(error)[:200]}"
    ended = _kib(RUSAGE_CHILDREN)  # of all that ever were
    grown = max((kib - living.get(child, 0) for child, kib in _living().items()), default=0)
    mib = max(_kib(RUSAGE_SELF) - before, grown, ended if ended > children else 0) / 1024
    if name in GOOD and mib > MOST_MEMORY:
        return Outcome("memory", "", f"{mib:.0f} MiB", mib)
    return Outcome(name, where, what, mib)


class _Unicode(io.TextIOWrapper):
    """A place for what is printed, as strict as a terminal in UTF-8."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8")


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise Hung in what runs in the main thread after so many seconds, again and again until it is heard."""

    def ring(*_: Any) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def place_of(error: BaseException) -> str:
    """Return the last line of the program's own, or of whatever it is, that an exception came through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    own = [f for f in frames if _is_own(f.filename)] or frames
    return f"{_short(own[-1].filename)}:{own[-1].lineno} {own[-1].name}" if own else ""


def place_in(text: str) -> str:
    """Return the same from a printed traceback; its first words where it is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("File ")]
    own = [line for line in lines if _is_own(line)] or lines
    return _short(own[-1]) if own else re.sub(r"/\S*|[-\d]+", "N", " ".join(text[:80].split()))


def _is_own(name: str) -> bool:
    return any(f"{ROOT}/{part}/" in name for part in ("mpifl", "data_prep"))


def _short(name: str) -> str:
    return name.replace(str(ROOT) + "/", "")


def _fresh_peak() -> None:
    """Forget the peak of this process's memory, where the system lets it:
    then it is what the process holds now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _kib(who: int) -> int:
    return getrusage(who).ru_maxrss


def _living() -> dict[str, int]:
    """Return the highest memory, in KiB, that each living child ever had, where the system tells.

    A fork of a large process is large from its beginning.
    """
    highest = {}
    for told in Path("/proc/self/task").glob("*/children"):
        for child in told.read_text().split():
            with contextlib.suppress(OSError, ValueError):  # it has just ended
                status = Path(f"/proc/{child}/status").read_text()
                highest[child] = int(status.partition("VmHWM:")[2].split()[0])
    return highest
