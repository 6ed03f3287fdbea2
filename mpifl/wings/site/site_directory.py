"""A site's folder, which others cannot look into, and files in it that are made once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mpifl.common import InputError

VARIABLE = "MPIFL_SITE"


def site_folder(asker: str, what: str) -> Path:
    """Return the folder that MPIFL_SITE names; it is made if it is not there.

    Args:
        asker: Who needs it, such as `[privacy]`.
        what: What lies there.

    Raises:
        InputError: the variable is not set, or the folder is not the user's own.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        missing = f"{VARIABLE} names no folder for {what}"
        raise InputError(f"{asker}: {missing}; set it, such as {VARIABLE}=$HOME/mpifl-site, and keep it")
    folder = Path(named).expanduser()
    make_own(folder)
    return folder


def make_own(folder: Path, named: str = "") -> None:
    """See that a folder is there and nobody else's.

    Args:
        folder: The folder.
        named: What errors call it; by default what names a site's.

    Raises:
        InputError: it cannot be made, belongs to another user, or others may look in.
    """
    named = named or f"{VARIABLE}={folder}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise InputError(f"{named}: {error.strerror or error}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InputError(f"{named}: is no folder of yours; name one that is")
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise InputError(f"{named}: has mode {mode}, others may look in; chmod 700 {folder}")


def make_once(path: Path, content: bytes) -> bool:
    """Make a file that only its user reads, whole when it is there; return False if it was there.

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
    """Give a file its name, and return False where another was first."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    return True


def fsync_folder(folder: Path) -> None:
    """Return when the names of a folder's files are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
