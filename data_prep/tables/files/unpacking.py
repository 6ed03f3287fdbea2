"""Limits of what a file unpacks to, held before there is room for it:
it may promise anything, in a few bytes."""

from __future__ import annotations

import ast
import io
import math
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from mpifl.common import InputError

FREE = 1 << 30
"""Bytes that any file may unpack to."""
RATIO = 100
"""How many times its own length a file may unpack to beyond that;
deflate can write a thousand zeros in a byte."""
MOST_HEADER = 1 << 12
"""Bytes of the header of an array, some hundred of which numpy uses."""
MOST_AT_ONCE = 1 << 20
"""Bytes of a zip archive's table of contents: some 20,000 files."""
MAGIC = b"\x93NUMPY"
WIDTHS = {1: 2, 2: 4, 3: 4}
"""By the version of a .npy file, the bytes of its header's length."""


def check_unpacked(path: Path, what: str, size: int) -> None:
    """Refuse a file that would unpack to more than 1 GiB and than 100 times its own length."""
    stored = path.stat().st_size
    if size > max(FREE, RATIO * stored):
        found = f"{what} of {size:,} bytes out of {stored:,}"
        raise InputError(
            f"{path}: {found}, over {RATIO} times as many and 1 GiB; unpack them, or store npy or hdf5"
        )


def size_of_array(file: IO[bytes]) -> int:
    """Return the bytes that a .npy file, open at its beginning, has by its header.

    Raises:
        ValueError: it is no such header, longer than numpy's are, or of an array of Python objects.
    """
    start = file.read(8)
    if start[:6] != MAGIC or len(start) < 8 or start[6] not in WIDTHS:
        raise ValueError("no array header")
    width = WIDTHS[start[6]]
    length = int.from_bytes(file.read(width), "little")
    if length > MOST_HEADER:
        raise ValueError(f"a header of {length:,} bytes, {MOST_HEADER:,} are the most")
    shape, dtype = _parsed(file.read(length).decode("latin1"))
    if dtype.hasobject:
        raise ValueError("Python objects, which would be a pickle")
    return 8 + width + length + math.prod(shape) * dtype.itemsize


def _parsed(header: str) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Return the shape and dtype that a header names, evaluating nothing."""
    try:
        found = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", header).strip())  # Python 2 wrote 28L
        shape, dtype = found["shape"], np.dtype(found["descr"])
    except (ValueError, TypeError, LookupError, SyntaxError, RecursionError, MemoryError, OverflowError):
        raise ValueError("no array header") from None
    whole = (
        isinstance(shape, tuple)
        and len(shape) <= 32
        and all(type(n) is int and 0 <= n < 1 << 48 for n in shape)
    )
    if not whole or not dtype.itemsize:
        raise ValueError(f"a header with shape {str(shape)[:40]} and dtype {str(dtype)[:40]}")
    return shape, dtype


class _Archive(io.FileIO):
    """A file that zipfile reads little by little; it reads a table of contents at once,
    whatever length that claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MOST_AT_ONCE:
            raise zipfile.BadZipFile(f"a table of contents of {size:,} bytes, {MOST_AT_ONCE:,} are the most")
        return super().read(-1 if size is None else size) or b""


@contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Lend a zip archive of not too many files; members must be read in pieces of less than a MiB."""
    with _Archive(path) as file, zipfile.ZipFile(file) as archive:
        yield archive


def check_method(member: zipfile.ZipInfo) -> None:
    """Refuse what is packed by a method whose pieces unpack to any length; raise BadZipFile."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile("packed by another method than deflate")
