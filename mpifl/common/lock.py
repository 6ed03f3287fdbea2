"""The lock of a run folder, for one job at a time; the kernel drops it when the holder dies in any way."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from mpifl.common.errors import InputError
from mpifl.common.files import no_link

FILE = ".lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_PATIENCE = 0.2
"""Seconds to try again: a job that only checks whether the folder is free holds the lock for a moment."""


@contextmanager
def hold(folder: Path, named: bool = True) -> Iterator[str | None]:
    """Make the run folder, and keep other jobs out of it while the context lasts and this process lives.

    Args:
        named: Whether the user has named it by `--out`, and can name another one.

    Yields:
        A warning for the user if the file system has no locks; else None.

    Raises:
        InputError: another job holds the folder, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(no_link(str(folder / FILE), os.O_RDWR | os.O_CREAT), "r+")
    except OSError as error:
        raise cannot_be_written(folder, error, named) from None
    with file:
        problem = _lock(file, folder, named)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": since}
        try:
            file.truncate(0)
            file.write(json.dumps(holder))
            file.flush()
        except OSError as error:
            raise cannot_be_written(folder, error, named) from None
        yield problem


def check(folder: Path) -> None:
    """Check that no job holds the run folder and that this process could hold it; write nothing.

    Raises:
        InputError: another job holds the folder, or the folder cannot be written.
    """
    try:
        # some network file systems lock only files that are open for writing
        file = os.fdopen(no_link(str(folder / FILE), os.O_RDWR), "r+")
    except FileNotFoundError:
        return _check_room_for(folder)
    except OSError as error:
        raise cannot_be_written(folder, error) from None
    with file:
        _lock(file, folder)


def _check_room_for(folder: Path) -> None:
    """Check that a file or a folder could be made here."""
    there = next((one for one in (folder, *folder.absolute().parents) if one.exists()), Path("/"))
    if not os.access(there, os.W_OK | os.X_OK):
        number = errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES
        raise cannot_be_written(folder, OSError(number, os.strerror(number)))


def look(folder: Path) -> tuple[bool | None, dict[str, Any]]:
    """Return whether a job holds the run folder, and how its last holder described itself.

    The first is None if unknown, for example since this file system has no locks. This writes nothing and
    disturbs no job.
    """
    try:
        file = os.fdopen(no_link(str(folder / FILE), os.O_RDONLY), "r")
    except FileNotFoundError:
        return False, {}
    except OSError:
        return None, {}
    with file:
        holder = _told(file)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True, holder
        except OSError:
            return None, holder
    return False, holder


def cannot_be_written(folder: Path, error: OSError, named: bool = True) -> InputError:
    """Return the error for a run folder that cannot be made or written."""
    to_do = "name a folder that can by --out" if named else "make it writable"
    return InputError(f"{folder}: cannot be written ({error.strerror or error}); {to_do}")


def _lock(file: IO[str], folder: Path, named: bool = True) -> str | None:
    """Take the lock; return a warning if this file system has no locks."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise _in_use(file, folder, named) from None
            time.sleep(_PATIENCE / 10)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise cannot_be_written(folder, error, named) from None
            what = f"its file system has no locks ({error.strerror})"
            return f"{folder}: {what}; see to it that no other job writes there"


def _in_use(file: IO[str], folder: Path, named: bool) -> InputError:
    to_do = "wait until that ends, or name another folder by --out" if named else "end that first"
    return InputError(f"{folder} is in use by {_holder(file)}; {to_do}")


def _holder(file: IO[str]) -> str:
    """Return a description of the lock's holder, by what it wrote."""
    told = _told(file)
    try:
        return f"a training with pid {told['pid']} on {told['host']} since {told['since']}"
    except KeyError:  # it has the lock, but has not written its description yet
        return "another training"


def _told(file: IO[str]) -> dict[str, Any]:
    """Return the description that a lock's holder has written; {} if it is none of ours."""
    try:
        file.seek(0)
        found = json.loads(file.read(4096))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
