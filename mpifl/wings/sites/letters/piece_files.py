"""Files of sealed pieces in the private folder: written past the page cache, since nobody reads them soon."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

ALIGNED = 4096
"""Addresses, lengths and places of direct writing are multiples of it."""
STEP = 1 << 20
"""Bytes that are written through the page cache at a time."""
_DIRECT = getattr(os, "O_DIRECT", 0)


def write_piece(path: Path, content: memoryview) -> None:
    """Write a new file, and have it on the disk. After a kill it may be there in part.

    Args:
        content: What does not begin at a multiple of `ALIGNED` goes through the page cache.

    Raises:
        OSError: it cannot be written.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        done = _written_directly(file, content[: len(content) // ALIGNED * ALIGNED])
        write_cached(file, content[done:])
        os.fsync(file)
    finally:
        os.close(file)


def write_cached(file: int, content: memoryview) -> None:
    """Write through the page cache, in small steps: for large ones the kernel looks for large free pages,
    which took five times the processor's time in a virtual machine."""
    while content:
        content = content[os.write(file, content[:STEP]) :]


def _written_directly(file: int, content: memoryview) -> int:
    """Write as much as the file system takes past the page cache; return how many bytes."""
    done, flags = 0, fcntl.fcntl(file, fcntl.F_GETFL)
    with suppress(OSError):  # what fails here fails, or does not, through the page cache
        fcntl.fcntl(file, fcntl.F_SETFL, flags | _DIRECT)
        while done < len(content):
            done += os.write(file, content[done:])
    fcntl.fcntl(file, fcntl.F_SETFL, flags)
    return done
