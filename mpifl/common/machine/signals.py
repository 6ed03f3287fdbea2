"""Signals that ask a run to end: they only leave a note,
which the round loop reads at its next safe point."""

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
"""Environment variable: a file that is there once a signal came to the program that started the launcher.
A launcher that has not started its ranks yet may hand on none."""
_noted = False


def install() -> None:
    """Leave a note on TERM, INT, USR1 and USR2 instead of dying of them; call it on every rank."""
    for name in SIGNALS:
        signal.signal(name, lambda *_: note())
    if (came := os.environ.get(CAME)) and Path(came).exists():
        note()
    atexit.register(_deaf_to_late_signals)


@contextlib.contextmanager
def kept_back() -> Iterator[None]:
    """Leave a note on these signals for as long as the context lasts, and send those that came on at its end.

    Python lets the main thread alone do so; in others nothing is kept back.
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
    """Remember that this run is to end."""
    global _noted
    _noted = True


def pending() -> bool:
    """Whether a signal has come."""
    return _noted


def clear() -> None:
    """Forget the note."""
    global _noted
    _noted = False


def _deaf_to_late_signals() -> None:
    """Let a second request not kill a rank that is about to exit:
    Python itself goes back to dying of them there."""
    for name in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(name, signal.SIG_IGN)
