"""A user's own arrays from a NumPy .npz file: x, y, and optionally x_test, y_test, silo, held_out."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from data_prep.model import Dataset
from data_prep.sources.aims import Wanted
from data_prep.sources.arrays import chosen, dataset_of, with_options
from data_prep.sources.reading import Digests, needed
from data_prep.tables import MAGIC, check_method, check_unpacked, opened_zip, size_of_array
from mpifl.common import InputError


@with_options
def read_npz(data: Path | None, wanted: Wanted) -> Dataset:
    """Read x [n, *shape], y [n, ...], and where present x_test, y_test, silo and held_out; never a pickle.

    The arrays are read into memory whole: a .npz file cannot be mapped. What does not fit belongs into npy or
    hdf5.
    """
    path = needed("npz", data, "measurements.npz")
    files = Digests()
    files.note(path)
    arrays = load_arrays(path, wanted)
    with opened_zip(path) as archive:
        stored = [Path(name).stem for name in archive.namelist()]
    return dataset_of(path, arrays, files, wanted, unread=stored)


def load_arrays(path: Path, asked: Wanted) -> dict[str, np.ndarray]:
    """Return the arrays of a file that a source reads, by their names.

    Raises:
        InputError: it is no such file, or damaged.
    """
    try:
        with opened_zip(path) as archive:
            stored = {Path(member.filename).stem: member for member in archive.infolist()}
            wanted = {name: stored[name] for name in chosen(stored, asked)}
            check_unpacked(path, "arrays", sum(member.file_size for member in wanted.values()))
            return {name: _member(path, archive, name, member) for name, member in wanted.items()}
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
        with archive.open(member) as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except ValueError as error:
        if "pickle" in str(error):
            to_do = f"store numbers, ragged rows one after another with {name}.offsets"
            raise InputError(f"{path}: {name} holds Python objects (or is ragged); {to_do}") from None
        raise InputError(f"{path}: {name} is damaged ({error}); write it again") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, MemoryError) as error:
        raise InputError(f"{path}: {name} is damaged ({error}); write it again") from None
