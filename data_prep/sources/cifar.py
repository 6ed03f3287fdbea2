"""CIFAR-10 and CIFAR-100 from their publisher's binary or Python version (Krizhevsky 2009)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.model import Dataset
from data_prep.sources.pickled import read_pickled_dict
from data_prep.sources.reading import held_in, known_folder, noted, unreadable
from mpifl.common import InputError

PIXELS = 3 * 32 * 32
MOST_BYTES = 1 << 28
"""Bytes of a file that are read; CIFAR-100's training file, the largest, has 155 million."""
Labelled = tuple[np.ndarray, np.ndarray]
"""Images, uint8 [n, 3, 32, 32], and their labels, int64 [n]."""


@dataclass(frozen=True)
class Version:
    """What the publisher calls things in one of the two sets.

    Attributes:
        classes: How many classes there are.
        train: The training files' names without their ending.
        test: The test file's name without its ending.
        key: The labels' name in the Python version.
        label_bytes: How many label bytes stand before an image in the binary version; the last one is taken.
        names: The files of class names: of the binary version, and of the Python version with its key.
    """

    classes: int
    train: Sequence[str]
    test: str
    key: str
    label_bytes: int
    names: tuple[str, str, str]


CIFAR10 = Version(
    classes=10,
    train=[f"data_batch_{number}" for number in range(1, 6)],
    test="test_batch",
    key="labels",
    label_bytes=1,
    names=("batches.meta.txt", "batches.meta", "label_names"),
)
CIFAR100 = Version(
    classes=100,
    train=["train"],
    test="test",
    key="fine_labels",
    label_bytes=2,
    names=("fine_label_names.txt", "meta", "fine_label_names"),
)
COARSE = Version(
    classes=20,
    train=["train"],
    test="test",
    key="coarse_labels",
    label_bytes=2,
    names=("coarse_label_names.txt", "meta", "coarse_label_names"),
)
NESTED = ("cifar-10-batches-bin", "cifar-10-batches-py", "cifar-100-binary", "cifar-100-python")
"""The folders inside the publisher's archives."""


def read_cifar10(data: Path | None, seed: int) -> Dataset:
    """Read the five training batches and the test batch of a folder, `*.bin` or pickled.

    Images become uint8 [n, 3, 32, 32] with scale 1/255; the test batch is the server's test set.
    """
    return _read("cifar10", CIFAR10, data)


def read_cifar100(data: Path | None, seed: int, *, coarse: bool = False) -> Dataset:
    """Read the training and the test file of a folder, binary or pickled; `coarse` takes the 20 superclasses.

    Images become uint8 [n, 3, 32, 32] with scale 1/255; the test file is the server's test set.
    """
    return _read("cifar100", COARSE if coarse else CIFAR100, data)


def _read(name: str, version: Version, data: Path | None) -> Dataset:
    given = known_folder(name, data, f"of {name}'s files, binary or Python version")
    folder = next((given / inner for inner in NESTED if (given / inner).is_dir()), given)
    ending, read = _format(folder, version)
    files: dict[str, str] = {}
    parts = [
        read(noted(_small(held_in(given, folder / (part + ending))), files), version)
        for part in (*version.train, version.test)
    ]
    x, y = (np.concatenate(column) for column in zip(*parts[:-1], strict=True))
    names = _class_names(given, folder, version, files, binary=bool(ending))
    return Dataset(
        str(folder), x, y, version.classes, files, scale=1 / 255, test=parts[-1], class_names=names
    )


def _format(folder: Path, version: Version) -> tuple[str, Callable[[Path, Version], Labelled]]:
    for ending, read in ((".bin", _read_binary), ("", _read_python)):
        if (folder / (version.train[0] + ending)).is_file():
            return ending, read
    raise InputError(
        f"{folder / version.train[0]}: is not there, nor with .bin; --data must name the folder of it"
    )


def _read_binary(path: Path, version: Version) -> Labelled:
    """Read records of label bytes and 3072 pixel bytes: the red, green and blue planes of 32 rows of 32."""
    content = _content(path)
    record = version.label_bytes + PIXELS
    if not content or len(content) % record:
        raise InputError(
            f"{path}: {len(content)} bytes are no whole number of {record}-byte images; fetch it again"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    at = 0 if version is COARSE else version.label_bytes - 1  # CIFAR-100 has the coarse label first
    return _checked(path, records[:, version.label_bytes :], records[:, at], version)


def _read_python(path: Path, version: Version) -> Labelled:
    batch = read_pickled_dict(_content(path), str(path))
    for key in ("data", version.key):
        if key not in batch:
            raise InputError(
                f"{path}: has no '{key}'; it must be a batch of the Python version, fetch it again"
            )
    x = batch["data"]
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != PIXELS:
        raise InputError(f"{path}: 'data' is no array of {PIXELS} bytes an image; fetch it again")
    try:
        labels = np.array(batch[version.key], np.int64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{path}: '{version.key}' holds something else than numbers; fetch it again"
        ) from None
    return _checked(path, x, labels, version)


def _checked(path: Path, x: np.ndarray, y: np.ndarray, version: Version) -> Labelled:
    if y.shape != (len(x),) or not len(x):
        raise InputError(f"{path}: {y.size} labels for {len(x)} images; fetch it again")
    if not 0 <= y.min() <= y.max() < version.classes:
        wrong = f"labels from {y.min()} to {y.max()}, they must be 0 to {version.classes - 1}"
        raise InputError(f"{path}: {wrong}; fetch it again")
    return x.reshape(-1, 3, 32, 32), y.astype(np.int64)


def _class_names(
    given: Path, folder: Path, version: Version, files: dict[str, str], *, binary: bool
) -> tuple[str, ...] | None:
    """Read the class names if their file is there; it is not needed."""
    text, meta, key = version.names
    path = folder / (text if binary else meta)
    if not path.is_file():
        return None
    content = _content(noted(_small(held_in(given, path)), files))
    found = (
        content.decode(errors="replace").split() if binary else read_pickled_dict(content, str(path)).get(key)
    )
    known = isinstance(found, list) and len(found) == version.classes
    if not isinstance(found, list) or not known or any("\0" in str(name) for name in found):
        raise InputError(f"{path}: does not hold the names of {version.classes} classes; fetch it again")
    return tuple(map(str, found))


def _small(path: Path) -> Path:
    """Return a path, unless it is of a file larger than any of the publisher's."""
    if path.is_file() and (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(f"{path}: {size:,} bytes; the publisher's largest has 155 million, fetch it again")
    return path


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
