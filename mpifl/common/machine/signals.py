"""Signals that ask a run to end: they only set a flag, which the round loop reads at its next safe point."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
CAME = "MPIFL_SIGNALLED"
"""Environment variable: a file that exists once a signal came to the program that started the launcher. The
launcher may not hand on a signal before it has started its ranks."""
_noted = False


def install() -> None:
    """Let TERM, INT, USR1 and USR2 set the flag instead of ending the process; every rank calls this."""
    for name in SIGNALS:
        signal.signal(name, lambda *_: note())
    if (came := os.environ.get(CAME)) and Path(came).exists():
        note()
    atexit.register(_deaf_to_late_signals)


@contextlib.contextmanager
def kept_back() -> Iterator[None]:
    """Let these signals only set the flag inside the context; raise those that came again at its end.

    Python allows this only in the main thread; in other threads signals are not kept back.
    """
    came: list[int] = []

    def keep(number: int, _: object) -> None:
        came.append(number)
        note()

    main = threading.current_thread() is threading.main_thread()
    found = {name: signal.signal(name, keep) for name in SIGNALS} if main else {}
    try:
        yield
    finally:
        clear()
        for name, handler in found.items():
            signal.signal(name, signal.SIG_DFL if handler is None else handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


def note() -> None:
    """Set the flag: this run should end."""
    global _noted
    _noted = True


def pending() -> bool:
    """Return whether the flag is set."""
    return _noted


def clear() -> None:
    """Clear the flag."""
    global _noted
    _noted = False


def _deaf_to_late_signals() -> None:
    """Ignore late signals: at its exit Python restores the defaults, and a signal would kill the rank."""
    for name in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(name, signal.SIG_IGN)
