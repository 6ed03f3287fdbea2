"""The user's own cache folder. Its files are run as code, so nobody else may have written them."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path


def folder() -> Path:
    """Return the cache folder, and make it if it is missing: `mpifl` in `$XDG_CACHE_HOME` or `~/.cache`.

    Raises:
        OSError: there is no home, or the folder cannot be written, or others may write to it.
    """
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    found = (chosen if chosen.is_absolute() else _home() / ".cache") / "mpifl"
    found.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(_own(found, os.O_DIRECTORY))
    return found


def opened(path: Path) -> int:
    """Open a file of the cache folder and return its descriptor; only this user can have written the file.

    Raises:
        OSError: the file is missing; or the file or its folder is a link, another user's, or writable by
            others.
    """
    beside = _own(path.parent, os.O_DIRECTORY)
    try:
        return _own(Path(path.name), 0, beside)
    finally:
        os.close(beside)


def loadable(descriptor: int, path: Path) -> str:
    """Return the name by which the loader loads a library from the very file that is open.

    The loader knows libraries by their names. So the descriptor must stay open as long as the library is
    used.
    """
    return f"/proc/self/fd/{descriptor}" if sys.platform == "linux" else str(path)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:  # no HOME, and no entry for this user
        raise FileNotFoundError(str(error)) from None


def _own(path: Path, kind: int, beside: int | None = None) -> int:
    """Open a file or folder that is no link, belongs to this user, and is writable only by this user."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | kind
    descriptor = os.open(path, flags, dir_fd=beside)
    about = os.fstat(descriptor)
    if about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return descriptor
    os.close(descriptor)
    raise PermissionError(
        f"{path}: others may have written to it; take them the right by chmod go-w, or remove it"
    )
