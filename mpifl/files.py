"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

Buffer: TypeAlias = bytes | memoryview


def write_aside(path: Path, content: Buffer | Iterable[Buffer]) -> None:
    """Write a file, given whole or piece by piece, under another name, flush it to the disk and rename it.

    So it is there whole or not at all.
    """
    pieces = [content] if isinstance(content, bytes | memoryview) else content
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        aside.unlink(missing_ok=True)
        with aside.open("xb") as file:  # a new file, never what a link of that name leads to
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def allow_many_open_files() -> None:
    """Let this process open as many files as it may: a silo's shard takes one for as long as it is mapped."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS: "unlimited" is more than it grants
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def written_after(path: Path, other: Path) -> bool:
    """Whether both files are there, and the first was not written before the other."""
    try:
        return path.stat().st_mtime_ns >= other.stat().st_mtime_ns
    except OSError:
        return False
