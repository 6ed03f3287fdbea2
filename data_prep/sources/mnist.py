"""MNIST and Fashion-MNIST from their publishers' four IDX files, gzipped or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from data_prep.dataset import Dataset
from data_prep.sources.reading import held_in, known_folder, noted, unreadable
from data_prep.tables import check_unpacked
from mpifl.common import InputError

CLASSES = 10
UNSIGNED_BYTE = 0x08


def read_mnist(name: str, data: Path | None, seed: int) -> Dataset:
    """Read the four IDX files of a folder; `$MPIFL_DATA/<name>` if no folder is given.

    Images become uint8 [n, 1, rows, columns] with scale 1/255; the t10k files are the server's test set.
    """
    folder = known_folder(name, data, f"of {name}'s four IDX files")
    files: dict[str, str] = {}
    x, y = _read_pair(folder, "train", files)
    test = _read_pair(folder, "t10k", files)
    if test[0].shape[1:] != x.shape[1:]:
        sizes = f"{_pixels(x)} pixels, the t10k images {_pixels(test[0])}"
        raise InputError(f"{folder}: the train images have {sizes}; use all four files from one data set")
    return Dataset(str(folder), x, y, CLASSES, files, scale=1 / 255, test=test)


def _read_pair(folder: Path, part: str, files: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Read the images and labels of `train` or `t10k`, and note the files' sha256 in `files`."""
    path_x, path_y = (_find(folder, f"{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    x, y = _read_idx(path_x, 3, files), _read_idx(path_y, 1, files)
    if len(x) != len(y):
        raise InputError(
            f"{path_y}: {len(y)} labels, but {path_x.name} has {len(x)} images; use both from one set"
        )
    if x.size == 0:
        raise InputError(f"{path_x}: images of shape {list(x.shape)} hold nothing; fetch the file again")
    if y.max() >= CLASSES:
        raise InputError(f"{path_y}: label {y.max()}; they must be 0 to {CLASSES - 1}")
    return x[:, np.newaxis], y.astype(np.int64)


def _find(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return held_in(folder, path)
    raise InputError(
        f"{folder / name}.gz: is not there, nor without .gz; --data must name the folder that holds it"
    )


def _read_idx(path: Path, axes: int, files: dict[str, str]) -> np.ndarray:
    """Read an IDX file of unsigned bytes: two zeros, type, number of axes, big-endian lengths, then the
    bytes.

    No more is unpacked than the header promises, nor than `check_unpacked` allows.
    """
    noted(path, files)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            shape = _shape(path, file.read(4 + 4 * axes), axes)
            check_unpacked(path, "values", size := math.prod(shape))
            content = file.read(size + 1)  # at the end a gzip's checksum is compared
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: corrupt gzip ({error}); fetch it again") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if len(content) != size:
        found = f"{len(content):,} values, its header promises {size:,}"
        found = found if len(content) < size else f"more than the {size:,} values that its header promises"
        raise InputError(f"{path}: holds {found}; fetch it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _shape(path: Path, header: bytes, axes: int) -> tuple[int, ...]:
    if header[:4] != bytes([0, 0, UNSIGNED_BYTE, axes]):
        raise InputError(
            f"{path}: begins with {header[:4].hex(' ')}, not an IDX file of {axes} axes; fetch it again"
        )
    if len(header) < 4 + 4 * axes:
        raise InputError(f"{path}: {len(header)} bytes are less than an IDX header; fetch it again")
    return struct.unpack(f">{axes}I", header[4:])


def _pixels(x: np.ndarray) -> str:
    return f"{x.shape[-2]}x{x.shape[-1]}"
