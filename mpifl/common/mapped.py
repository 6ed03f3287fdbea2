"""Files that are mapped: whoever cuts one short ends the process that reads it there (SIGBUS). Its last line
says which file it was."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

_mapped: dict[Path, int] = {}
"""The bytes of each file when it was mapped."""
_before: list[int | None] = []
"""What handled the signal before: an address, or None for what the system does."""


def note(path: Path, nbytes: int) -> None:
    """Take note that a file is mapped, and how long it is."""
    _mapped[path] = nbytes
    if not _before:
        with contextlib.suppress(AttributeError, OSError):  # no C library that is known: no line
            _before.append(_handle_by(ctypes.cast(_HANDLER, ctypes.c_void_p).value))


def cut() -> list[str]:
    """Return a line for each mapped file that is shorter than it was, or gone."""
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
    """Name the files that were cut, and end as without this.

    It is C that calls this: Python's own handlers run after the instruction that fails, which never ends.
    """
    try:
        os.write(2, "".join(f"{line}\n" for line in cut()).encode())
    finally:
        _handle_by(_before[0])
        os.kill(os.getpid(), number)


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)(_tell)
"""C calls it for as long as this process lives."""


def _handle_by(handler: int | None) -> int | None:
    """Have a function handle SIGBUS; return what did before."""
    function = ctypes.CDLL(None, use_errno=True).signal
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    before: int | None = function(signal.SIGBUS, handler)
    return before
