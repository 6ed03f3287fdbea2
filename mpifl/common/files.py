"""Files: atomic writing (aside, flush, rename), safe reading of files from anybody, digests, limits."""

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
"""Further files that a training opens at times: for checkpoints, shared memory and the parsing process."""


def write_atomic(path: Path, content: Buffer | Iterable[Buffer], mode: int = 0o666) -> None:
    """Write a file atomically: write it under another name, flush it to the disk, and rename it.

    So the file is there completely or not at all. A link with either name is replaced, and its target is not
    written to.

    Args:
        content: The content, as a whole or piece by piece.
        mode: The permissions of the new file, before the umask.
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


def write_named(option: str, path: Path, text: str) -> None:
    """Write the file that an option names.

    Raises:
        InputError: it cannot be written.
    """
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise InputError(
            f"{option} {path}: cannot be written ({error.strerror}); name another file"
        ) from None


def check_named(files: Iterable[tuple[str, Path]]) -> None:
    """See that files may be written as options name them, as far as that shows beforehand.

    Args:
        files: The option and the path of each.

    Raises:
        InputError: one may not, or two are the same.
    """
    taken: dict[Path, str] = {}
    for option, path in files:
        if other := taken.get(path.absolute()):
            raise InputError(f"{option} {path}: is the file of {other}, too; name another")
        taken[path.absolute()] = option
        if why := _hindered(path):
            raise InputError(f"{option} {path}: cannot be written ({why})")


def _hindered(path: Path) -> str:
    """Return why a file cannot be written, as far as that shows beforehand."""
    try:
        if path.is_dir():
            return "Is a directory"
        if not path.parent.is_dir():
            return f"{path.parent} is not a folder"
    except OSError as error:
        return str(error.strerror)
    return "" if os.access(path.parent, os.W_OK | os.X_OK) else f"nothing may be written to {path.parent}"


def write_needed(path: Path, content: bytes) -> None:
    """Write a file that a run needs, by `write_atomic`.

    Raises:
        Unwritable: the disk is full, or fails.
    """
    try:
        write_atomic(path, content)
    except OSError as error:
        raise Unwritable(path, error) from None


def remove_left_behind(folder: Path, names: str) -> None:
    """Remove partial files of killed writers from a folder, but not from its subfolders.

    Args:
        names: A regular expression; only partial files of matching names are removed.
    """
    left = re.compile(rf"\.(?:{names})\.[0-9]+\.partial")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(folder):
            if left.fullmatch(entry.name) and not entry.is_dir(follow_symlinks=False):
                Path(entry.path).unlink(missing_ok=True)


def no_link(name: str, flags: int) -> int:
    """Open a file for `open(..., opener=no_link)`, but not through a link, and without waiting on a pipe.

    Raises:
        OSError: the file is a link, or cannot be opened.
    """
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"{Path(name).name} is a link") from None
        raise


def read_whole(path: Path, most: int | None = None) -> bytes:
    """Return the content of a file, which may come from anybody.

    Raises:
        OSError: the file cannot be read, is no regular file, or has more than `most` bytes.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise OSError(errno.EFBIG, f"it has {size} bytes, {most} at most")
        return file.read()


def read_start(path: Path, length: int) -> bytes:
    """Return the first bytes of a file, which may come from anybody.

    Raises:
        OSError: the file cannot be read, or is no regular file.
    """
    with _opened(path) as file:
        return file.read(length)


def _opened(path: Path) -> BinaryIO:
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is not a file")


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return digest_of(file)


def digest_of(file: BinaryIO) -> str:
    """Return the sha256 of an open file from its current position on, in hexadecimal."""
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


def allow_many_open_files() -> None:
    """Raise this process's limit of open files: each silo's shard takes one as long as it is mapped."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS: "unlimited" is more than it grants
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def check_open_files(shards: int) -> None:
    """Check that this process may open its silos' files, beside the open files and a few more.

    Args:
        shards: How many silos this rank hosts.

    Raises:
        InputError: the limit is too low.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needs = shards + _SPARE_FILES + sum(1 for _ in os.scandir("/dev/fd"))
    if allowed != resource.RLIM_INFINITY and allowed < needs:
        what = f"this rank hosts {shards} silos, a file each, and needs {needs} files in all"
        raise InputError(f"ulimit -n = {allowed}: {what}; raise the limit (ulimit -Hn), or use more ranks")


def written_after(path: Path, other: Path) -> bool:
    """Return whether both files exist, and the first was not written before the other."""
    try:
        return path.stat().st_mtime_ns >= other.stat().st_mtime_ns
    except OSError:
        return False
