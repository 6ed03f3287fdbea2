"""Whether a folder can hold a run: it is written to, flushed, renamed and locked as a training would."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from mpifl.common import write_atomic
from mpifl.wire import Message

PROBE = 1 << 20
"""Bytes that are written."""


class Disk(Message):
    """A folder as one rank found it."""

    folder: str
    """The run folder, or the nearest one above that is there."""
    system: str
    fault: str | None = None
    """Why it cannot be written."""
    locks: str | None = None
    """Why it cannot be locked."""
    inode: int = 0
    """By which hosts see that they mean the same folder."""
    free: int = 0
    seconds: float = 0.0
    """To write, flush and rename 1 MiB."""


def examine_folder(folder: Path) -> Disk:
    """Try a run folder, or where it would be made, in a scratch folder that is taken away again."""
    places = (folder.absolute(), *folder.absolute().parents)
    there = next((path for path in places if path.exists()), Path("/"))
    disk = Disk(folder=str(there), system=file_system(there))
    if not there.is_dir():
        return disk.model_copy(update={"fault": "is no folder"})
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=there) as scratch:
            seconds, locks = _written(Path(scratch)), _locks(Path(scratch))
        free = shutil.disk_usage(there).free
    except OSError as error:
        return disk.model_copy(update={"fault": error.strerror or str(error)})
    found = {"locks": locks, "inode": there.stat().st_ino, "free": free, "seconds": seconds}
    return disk.model_copy(update=found)


def _written(scratch: Path) -> float:
    """Write aside, flush, rename and read back; return how long writing took.

    Raises:
        OSError: it fails, or reads otherwise than it was written.
    """
    path, content = scratch / "probe", bytes(range(256)) * (PROBE // 256)
    began = time.perf_counter()
    write_atomic(path, content)
    seconds = time.perf_counter() - began
    if path.read_bytes() != content:
        raise OSError("what was written reads otherwise")
    return seconds


def _locks(scratch: Path) -> str | None:
    """Lock a file twice; return what is wrong unless the second is refused."""
    path = scratch / "lock"
    with path.open("a+") as one, path.open("a+") as other:
        try:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.strerror or str(error)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return None
    return "two can lock the same file"


def file_system(folder: Path) -> str:
    """Return the kind of file system that a folder is on, such as ext4,
    nfs4 or lustre; "" where that is unknown."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    real, best, kind = os.path.realpath(folder), "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split()[4].encode().decode("unicode_escape")  # spaces are written \040
        if os.path.commonpath([mount, real]) == mount and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind
