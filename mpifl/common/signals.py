"""Signals that ask a run to end: they only leave a note, which the round loop reads at its next safe point."""

from __future__ import annotations

import atexit
import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
_noted = False


def install() -> None:
    """Leave a note on TERM, INT, USR1 and USR2 instead of dying of them; call it on every rank."""
    for name in SIGNALS:
        signal.signal(name, lambda *_: note())
    atexit.register(_deaf_to_late_signals)


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
    """Let a second request not kill a rank that is about to exit: Python itself goes back to dying of them there."""
    for name in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(name, signal.SIG_IGN)
