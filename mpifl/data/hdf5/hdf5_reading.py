"""Reads HDF5 files that may be hostile: another process parses them, and this one maps the data.

The other process may have been taken over, so its answers are checked against the file before use.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import math
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from pydantic import BaseModel, Field, NonNegativeInt, PositiveInt, ValidationError

from mpifl.common import ShardError, digest_of, mapped
from mpifl.data.hdf5.hdf5_process import Parser, Unparsed

PIECE = 16 << 20
"""Bytes of data that are requested at a time, but at least one row of chunks."""
MOST_PACKED = 1032
"""The most bytes of data for each byte of the file, beyond the first MiB: deflate cannot compress more."""
MOST_KNOWN = 4096
"""The most files whose answers are kept."""
_RESTORE = "partition again or restore it"
_parser = Parser()
_known: dict[tuple[str, tuple[str, ...], tuple[str, ...]], dict[str, Any]] = {}
"""Answers by a file's digest and the request: the same bytes give the same answer."""
start_parser = _parser.start
atexit.register(_parser.end)


class StoredArray(BaseModel):
    """A data set in a file: its form and its place. `offset` is None unless the data are one contiguous plain
    block."""

    shape: tuple[NonNegativeInt, ...] = Field(min_length=1, max_length=32)
    kind: str = Field(alias="dtype", pattern="^[<>|][iuf][1248]$")
    offset: NonNegativeInt | None
    chunk: PositiveInt
    readable: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of the stored numbers."""
        return np.dtype(self.kind)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the data, as numbers in memory."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]


class _Content(BaseModel):
    attributes: dict[str, int | str | None]
    sets: dict[str, StoredArray]


Stamp: TypeAlias = tuple[int, ...]
"""Device, inode, size and time of the last write."""


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class Opened:
    """An open, parsed file: the attributes that are one number or text, and the data sets by name.

    Attributes:
        stamp: The file's stamp before its bytes were checked.
    """

    def __init__(self, path: Path, file: BinaryIO, stamp: Stamp, answer: dict[str, Any]) -> None:
        content = _Content.model_validate(answer)
        self.path, self.attributes, self.sets = path, content.attributes, content.sets
        self._file, self.stamp, self._size = file, stamp, stamp[2]

    def array(self, name: str) -> np.ndarray:
        """Return a data set in native numbers: mapped if it is stored like that, else read whole.

        It is mapped copy-on-write, since torch refuses read-only arrays.
        """
        of = self.sets[name]
        if of.offset is None or not of.dtype.isnative or of.offset % of.dtype.itemsize or not of.nbytes:
            return self._read(name, of)
        if of.offset + of.nbytes > self._size:
            raise ShardError(f"{self.path}: {name} ends behind the end of the file; {_RESTORE}")
        array: np.ndarray = self._whole[of.offset : of.offset + of.nbytes].view(of.dtype).reshape(of.shape)
        return array

    @functools.cached_property
    def _whole(self) -> np.ndarray:
        """The file, mapped only once, since each mapping holds a file descriptor while an array lives."""
        mapped.note(self.path, self._size)
        return np.memmap(self._file, np.uint8, mode="c")

    def _read(self, name: str, of: StoredArray) -> np.ndarray:
        if not of.readable:
            raise ShardError(
                f"{self.path}: compressed with a filter that HDF5 lacks; pip install 'mpifl[compression]'"
            )
        if of.nbytes > (1 << 20) + MOST_PACKED * self._size:
            what = f"{name}: {of.nbytes} bytes of data in a file of {self._size}"
            raise ShardError(f"{self.path}: {what}; write it without compression")
        array = np.empty(of.shape, of.dtype.newbyteorder("="))
        if of.nbytes:
            rows = max(PIECE * len(of) // of.nbytes, 1)
            step = -(-rows // of.chunk) * of.chunk
            pieces = [array[first : first + step].reshape(-1) for first in range(0, len(of), step)]
            request = {"set": name, "step": step, "bytes": pieces[0].nbytes}
            _parser.ask(self._file, request, [piece.view(np.uint8).data for piece in pieces])
        return array


@contextlib.contextmanager
def opened(
    path: Path, nbytes: int, sha256: str | None, attributes: Sequence[str], sets: Sequence[str]
) -> Iterator[Opened]:
    """Open a file, check its digest and have it parsed. The hashed file is the mapped one, even if the path
    changes later.

    Args:
        path: The file; it must not be a link.
        nbytes: Its size.
        sha256: Its digest; None accepts any.
        attributes: Names of attributes to look for.
        sets: Names of data sets to look for.

    Raises:
        ShardError: the file is missing, altered, or cannot be parsed; raised here, or while it is read.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            stamp = stamp_of(os.fstat(file.fileno()))  # before its bytes are read
            _check_bytes(path, file, nbytes, sha256)
            yield Opened(path, file, stamp, _told(file, sha256, tuple(attributes), tuple(sets)))
    except OSError as error:
        raise ShardError(f"{path}: {_reason(error)}") from None
    except Unparsed as what:
        raise ShardError(f"{path}: not a readable HDF5 shard ({what}); {_RESTORE}") from None
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        raise ShardError(f"{path}: not a readable HDF5 shard (another form: {said}); {_RESTORE}") from None
    except MemoryError:
        raise ShardError(f"{path}: its data do not fit into memory; write it without compression") from None


def check_file(path: Path, nbytes: int) -> None:
    """Check that a file is there with its size, without reading it.

    Args:
        path: The file; it must not be a link.
        nbytes: Its size.

    Raises:
        ShardError: it is missing, no file, or of another size.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            _check_bytes(path, file, nbytes, None)
    except OSError as error:
        raise ShardError(f"{path}: {_reason(error)}") from None


def _told(
    file: BinaryIO, sha256: str | None, attributes: tuple[str, ...], sets: tuple[str, ...]
) -> dict[str, Any]:
    """Return the answer for a file; parse it unless this content is known."""
    asked = {"attributes": attributes, "sets": sets}
    if sha256 is None:  # no digest was checked
        return _parser.ask(file, asked)
    content = sha256, attributes, sets
    if (answer := _known.get(content)) is None:
        answer = _parser.ask(file, asked)
        if len(_known) < MOST_KNOWN:
            _known[content] = answer
    return answer


def _check_bytes(path: Path, file: BinaryIO, nbytes: int, sha256: str | None) -> None:
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        raise ShardError(f"{path}: is not a file; {_RESTORE}")
    if found.st_size != nbytes:
        raise ShardError(f"{path}: {found.st_size} bytes, federation.json says {nbytes}; {_RESTORE}")
    if sha256 and digest_of(file) != sha256:
        raise ShardError(f"{path}: altered, its sha256 is not that in federation.json; {_RESTORE}")


def _reason(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "this process may open no more files; raise 'ulimit -n', or use more ranks"
    if error.errno == errno.ELOOP:
        return "is a link; put the file itself there, or link the whole folder"
    what = (
        "is missing"
        if isinstance(error, FileNotFoundError)
        else f"cannot be read ({error.strerror or error})"
    )
    return f"{what}; federation.json names it"
