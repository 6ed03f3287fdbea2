"""A site's private folder, and files in it that are made only once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mpifl.common import InputError

VARIABLE = "MPIFL_SITE"


def site_folder(asker: str, what: str) -> Path:
    """Return the folder that MPIFL_SITE names, and make it if it is missing.

    Args:
        asker: The table that needs it, such as `[privacy]`, for the error.
        what: What the folder holds, for the error.

    Raises:
        InputError: the variable is not set, or the folder is not private to this user.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        missing = f"{VARIABLE} names no folder for {what}"
        raise InputError(f"{asker}: {missing}; set it, such as {VARIABLE}=$HOME/mpifl-site, and keep it")
    folder = Path(named).expanduser()
    make_own(folder)
    return folder


def make_own(folder: Path, named: str = "") -> None:
    """Make a folder if it is missing, and check that it is private to this user.

    Args:
        named: Its name in errors; by default the variable with its value.

    Raises:
        InputError: it cannot be made, belongs to another user, or others can read it.
    """
    named = named or f"{VARIABLE}={folder}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise InputError(f"{named}: {error.strerror or error}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InputError(f"{named}: is not a folder of yours; name one that is")
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise InputError(f"{named}: has mode {mode}, others may look in; chmod 700 {folder}")


def make_once(path: Path, content: bytes) -> bool:
    """Make a file that only its user can read; return False if it already existed.

    The file appears under its name only when it is complete.

    Raises:
        InputError: it cannot be written.
    """
    draft = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(file, content)
            os.fsync(file)
        finally:
            os.close(file)
        made = _linked(draft, path)
        fsync_folder(path.parent)
        return made
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        draft.unlink(missing_ok=True)


def _linked(draft: Path, path: Path) -> bool:
    """Give a file its name; return False if another process was faster."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    return True


def fsync_folder(folder: Path) -> None:
    """Write the names of a folder's files to the disk, and return when they are there."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
