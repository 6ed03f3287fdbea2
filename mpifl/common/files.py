"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import resource
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, TypeAlias

from mpifl.common.errors import InputError, Unwritable

Buffer: TypeAlias = bytes | memoryview
_SPARE_FILES = 32
"""Files that a training opens now and then: of checkpoints, of shared memory, of the process that parses."""


def write_atomic(path: Path, content: Buffer | Iterable[Buffer], mode: int = 0o666) -> None:
    """Write a file, given whole or piece by piece, under another name, flush it to the disk and rename it.

    So it is there whole or not at all, and a link of either name is replaced and not written through.
    """
    pieces = [content] if isinstance(content, bytes | memoryview) else content
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    aside.unlink(missing_ok=True)
    try:
        with open(aside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_needed(path: Path, content: bytes) -> None:
    """Write a file that a run cannot do without, as `write_atomic` does.

    Raises:
        Unwritable: the disk is full, or fails.
    """
    try:
        write_atomic(path, content)
    except OSError as error:
        raise Unwritable(path, error) from None


def remove_left_behind(folder: Path, names: str) -> None:
    """Remove what writers that were killed have left in this folder of files whose names match;
    nothing beneath it."""
    left = re.compile(rf"\.(?:{names})\.[0-9]+\.partial")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(folder):
            if left.fullmatch(entry.name) and not entry.is_dir(follow_symlinks=False):
                Path(entry.path).unlink(missing_ok=True)


def no_link(name: str, flags: int) -> int:
    """Open a file for `open(..., opener=no_link)`: not through a link, and without waiting for a pipe's
    reader.

    Raises:
        OSError: it is a link, or cannot be opened.
    """
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"{Path(name).name} is a link") from None
        raise


def read_whole(path: Path, most: int | None = None) -> bytes:
    """Return what a file holds, which may come from anybody.

    Raises:
        OSError: it cannot be read, is no file (a pipe, a device), or has more than `most` bytes.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise OSError(errno.EFBIG, f"it has {size} bytes, {most} at most")
        return file.read()


def read_start(path: Path, length: int) -> bytes:
    """Return the first bytes of a file, which may come from anybody.

    Raises:
        OSError: it cannot be read, or is no file (a pipe, a device).
    """
    with _opened(path) as file:
        return file.read(length)


def _opened(path: Path) -> BinaryIO:
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is no file")


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return digest_of(file)


def digest_of(file: BinaryIO) -> str:
    """Return the sha256 of an open file from where it stands, in hexadecimal, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


def allow_many_open_files() -> None:
    """Let this process open as many files as it may: a silo's shard takes one for as long as it is mapped."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS: "unlimited" is more than it grants
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def check_open_files(shards: int) -> None:
    """See that this process may open the files of its silos, beside those that it has open and a few more.

    Raises:
        InputError: it may not.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needs = shards + _SPARE_FILES + sum(1 for _ in os.scandir("/dev/fd"))
    if allowed != resource.RLIM_INFINITY and allowed < needs:
        what = f"this rank hosts {shards} silos, a file each, and needs {needs} files in all"
        raise InputError(f"ulimit -n = {allowed}: {what}; raise the limit (ulimit -Hn), or take more ranks")


def written_after(path: Path, other: Path) -> bool:
    """Whether both files are there, and the first was not written before the other."""
    try:
        return path.stat().st_mtime_ns >= other.stat().st_mtime_ns
    except OSError:
        return False
