"""Tests whether a folder can hold a run: writes, flushes, renames and locks files as a training does."""

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
"""Bytes of the test file."""


class Disk(Message):
    """The condition of a folder on one rank."""

    folder: str
    """The run folder, or the nearest existing folder above it."""
    system: str
    fault: str | None = None
    """Why it cannot be written."""
    locks: str | None = None
    """Why it cannot be locked."""
    inode: int = 0
    """The inode, which shows whether hosts mean the same folder."""
    free: int = 0
    seconds: float = 0.0
    """The time to write, flush and rename 1 MiB."""


def examine_folder(folder: Path) -> Disk:
    """Test a run folder, or the place where it would be made, in a scratch folder that is removed again."""
    places = (folder.absolute(), *folder.absolute().parents)
    there = next((path for path in places if path.exists()), Path("/"))
    disk = Disk(folder=str(there), system=file_system(there))
    if not there.is_dir():
        return disk.model_copy(update={"fault": "is not a folder"})
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=there) as scratch:
            seconds, locks = _written(Path(scratch)), _locks(Path(scratch))
        free = shutil.disk_usage(there).free
    except OSError as error:
        return disk.model_copy(update={"fault": error.strerror or str(error)})
    found = {"locks": locks, "inode": there.stat().st_ino, "free": free, "seconds": seconds}
    return disk.model_copy(update=found)


def _written(scratch: Path) -> float:
    """Write, flush, rename and read back a file; return the seconds of writing. Raise OSError if it fails, or
    the file reads differently."""
    path, content = scratch / "probe", bytes(range(256)) * (PROBE // 256)
    began = time.perf_counter()
    write_atomic(path, content)
    seconds = time.perf_counter() - began
    if path.read_bytes() != content:
        raise OSError("what was written reads otherwise")
    return seconds


def _locks(scratch: Path) -> str | None:
    """Lock a file twice; return the fault, or None if the second lock is refused as it should be."""
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
    """Return the kind of a folder's file system, such as ext4, nfs4 or lustre; "" if unknown."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    real, best, kind = os.path.realpath(folder), "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split()[4].encode().decode("unicode_escape")  # a space is written as \040
        if os.path.commonpath([mount, real]) == mount and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind
