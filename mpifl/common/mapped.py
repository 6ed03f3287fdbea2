"""Mapped files: a process that reads one which was cut short dies (SIGBUS), and its last line names it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

_mapped: dict[Path, int] = {}
"""The size of each file in bytes when it was mapped."""
_before: list[int | None] = []
"""The handler of the signal before: its address, or None for the system's default."""


def note(path: Path, nbytes: int) -> None:
    """Note that a file is mapped, and its size."""
    _mapped[path] = nbytes
    if not _before:
        with contextlib.suppress(AttributeError, OSError):  # an unknown C library: no line then
            _before.append(_handle_by(ctypes.cast(_HANDLER, ctypes.c_void_p).value))


def cut() -> list[str]:
    """Return a line for each mapped file that is gone or has become shorter."""
    found = []
    for path, nbytes in sorted(_mapped.items()):
        try:
            left = path.stat().st_size
        except OSError as error:
            found.append(f"{path}: cannot be looked at any more ({error.strerror or error})")
            continue
        if left < nbytes:
            found.append(f"{path}: was cut from {nbytes} to {left} bytes while it was mapped; restore it")
    return found


def _tell(number: int) -> None:
    """Print the files that were cut, and then let the signal end the process as usual.

    C calls this. Python's own handlers would run only after the failing instruction, which never ends.
    """
    try:
        os.write(2, "".join(f"{line}\n" for line in cut()).encode())
    finally:
        _handle_by(_before[0])
        os.kill(os.getpid(), number)


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)(_tell)
"""The handler for C; it must live as long as this process."""


def _handle_by(handler: int | None) -> int | None:
    """Set the handler of SIGBUS by its address; return the handler before."""
    function = ctypes.CDLL(None, use_errno=True).signal
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    before: int | None = function(signal.SIGBUS, handler)
    return before
