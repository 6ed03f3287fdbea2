"""A user's own arrays from a NumPy .npz file: x, y, and optionally x_test, y_test, silo, held_out."""

from __future__ import annotations

import struct
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from data_prep.dataset import Dataset
from data_prep.sources.aims import Wanted
from data_prep.sources.arrays import chosen, dataset_of, with_options
from data_prep.sources.reading import Digests, needed
from data_prep.tables import MAGIC, check_method, check_unpacked, opened_zip, size_of_array
from mpifl.common import InputError

LARGE = 1 << 24
"""Bytes from which an array that is not compressed is compared with its checksum beside other work."""
PIECE = 1 << 20
"""Bytes of a file in memory at once while it is compared."""
NAME_LENGTH = 26
"""Where a member's own header has the lengths of its name and of what follows the name."""


@with_options
def read_npz(data: Path | None, wanted: Wanted) -> Dataset:
    """Read x [n, *shape], y [n, ...], and where present x_test, y_test, silo and held_out; never a pickle.

    The arrays are read into memory whole: a .npz file cannot be mapped. What does not fit belongs into npy or
    hdf5. Large arrays that are not compressed are compared with their checksums while the shards are written.
    """
    path = needed("npz", data, "measurements.npz")
    arrays, later = _loaded(path, wanted)
    files = Digests()
    files.note(path, partial(_compare, path, later))
    with opened_zip(path) as archive:
        stored = [Path(name).stem for name in archive.namelist()]
    return dataset_of(path, arrays, files, wanted, unread=stored)


def load_arrays(path: Path, asked: Wanted) -> dict[str, np.ndarray]:
    """Return the arrays of a file that a source reads, by their names.

    Raises:
        InputError: it is no such file, or damaged.
    """
    arrays, later = _loaded(path, asked)
    _compare(path, later)
    return arrays


def _loaded(path: Path, asked: Wanted) -> tuple[dict[str, np.ndarray], list[zipfile.ZipInfo]]:
    """Return the arrays by their names, and the members whose checksums were not looked at."""
    try:
        with opened_zip(path) as archive:
            stored = {Path(member.filename).stem: member for member in archive.infolist()}
            wanted = {name: stored[name] for name in chosen(stored, asked)}
            check_unpacked(path, "arrays", sum(member.file_size for member in wanted.values()))
            arrays = {name: _member(path, archive, name, member) for name, member in wanted.items()}
        return arrays, [member for member in wanted.values() if _plain(member)]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, struct.error) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{path}: not a .npz file, or cut short ({said[:80]}); write it with numpy.savez"
        ) from None


def _member(path: Path, archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> np.ndarray:
    """Read an array, when its header promises no more than the member has."""
    try:
        check_method(member)
        with archive.open(member) as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise InputError(f"{path}: {name} is not an array; write the file with numpy.savez")
        with archive.open(member) as file:
            if (promised := size_of_array(file)) > member.file_size:
                raise ValueError(f"its header promises {promised:,} bytes, there are {member.file_size:,}")
        if _plain(member):
            with path.open("rb") as whole:
                whole.seek(_start(whole, member))
                return np.asarray(np.lib.format.read_array(whole, allow_pickle=False))
        with archive.open(member) as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except ValueError as error:
        if "pickle" in str(error):
            to_do = f"store numbers, ragged rows one after another with {name}.offsets"
            raise InputError(f"{path}: {name} holds Python objects (or is ragged); {to_do}") from None
        raise InputError(f"{path}: {name} is damaged ({error}); write it again") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, MemoryError) as error:
        raise InputError(f"{path}: {name} is damaged ({error}); write it again") from None


def _plain(member: zipfile.ZipInfo) -> bool:
    """Whether a member is read past zipfile, which copies each byte three times and has one thread."""
    return member.compress_type == zipfile.ZIP_STORED and member.file_size >= LARGE


def _start(file: BinaryIO, member: zipfile.ZipInfo) -> int:
    """Return where the bytes of a member that is not compressed begin."""
    file.seek(member.header_offset + NAME_LENGTH)
    name, extra = struct.unpack("<HH", file.read(4))
    return member.header_offset + NAME_LENGTH + 4 + int(name) + int(extra)


def _compare(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Hold what members have against their checksums; raise InputError if it is something else."""
    with path.open("rb") as file:
        for member in members:
            file.seek(_start(file, member))
            found = 0
            for start in range(0, member.file_size, PIECE):
                found = zlib.crc32(file.read(min(PIECE, member.file_size - start)), found)
            if found != member.CRC:
                name = Path(member.filename).stem
                raise InputError(f"{path}: {name} is damaged (its checksum is another); write it again")
