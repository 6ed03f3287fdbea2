"""CIFAR-10 and CIFAR-100 from their publisher's binary version (Krizhevsky 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.dataset import Dataset
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
        label_bytes: How many label bytes stand before an image; the last one is taken.
        names: The file of class names.
    """

    classes: int
    train: Sequence[str]
    test: str
    label_bytes: int
    names: str


CIFAR10 = Version(
    classes=10,
    train=[f"data_batch_{number}" for number in range(1, 6)],
    test="test_batch",
    label_bytes=1,
    names="batches.meta.txt",
)
CIFAR100 = Version(classes=100, train=["train"], test="test", label_bytes=2, names="fine_label_names.txt")
COARSE = Version(classes=20, train=["train"], test="test", label_bytes=2, names="coarse_label_names.txt")
NESTED = ("cifar-10-batches-bin", "cifar-100-binary")
"""The folders inside the publisher's archives."""
PICKLED = ("cifar-10-batches-py", "cifar-100-python")
"""Those of its Python version, whose files are pickles."""


def read_cifar10(data: Path | None, seed: int) -> Dataset:
    """Read the five training batches and the test batch of a folder, `*.bin`.

    Images become uint8 [n, 3, 32, 32] with scale 1/255; the test batch is the server's test set.
    """
    return _read("cifar10", CIFAR10, data)


def read_cifar100(data: Path | None, seed: int, *, coarse: bool = False) -> Dataset:
    """Read the training and the test file of a folder, `*.bin`; `coarse` takes the 20 superclasses.

    Images become uint8 [n, 3, 32, 32] with scale 1/255; the test file is the server's test set.
    """
    return _read("cifar100", COARSE if coarse else CIFAR100, data)


def _read(name: str, version: Version, data: Path | None) -> Dataset:
    given = known_folder(name, data, f"of {name}'s binary version")
    folder = next((given / inner for inner in NESTED if (given / inner).is_dir()), given)
    if not (folder / f"{version.train[0]}.bin").is_file():
        other = "; files without .bin are of the Python version, and docs/howto/formats.md has a function"
        found = any((given / inner / version.test).is_file() for inner in ("", *PICKLED))
        told = f"is not there; --data must name its folder{other if found else ', or say --fetch, too'}"
        raise InputError(f"{folder / version.train[0]}.bin: {told}")
    files: dict[str, str] = {}
    parts = [
        _read_binary(noted(_small(held_in(given, folder / f"{part}.bin")), files), version)
        for part in (*version.train, version.test)
    ]
    x, y = (np.concatenate(column) for column in zip(*parts[:-1], strict=True))
    names = _class_names(given, folder / version.names, version, files)
    return Dataset(
        str(folder), x, y, version.classes, files, scale=1 / 255, test=parts[-1], class_names=names
    )


def _read_binary(path: Path, version: Version) -> Labelled:
    """Read records of label bytes and 3072 pixel bytes: the red, green and blue planes of 32 rows of 32."""
    content = _content(path)
    record = version.label_bytes + PIXELS
    if not content or len(content) % record:
        raise InputError(
            f"{path}: {len(content)} bytes are not a whole number of {record}-byte images; fetch it again"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    at = 0 if version is COARSE else version.label_bytes - 1  # CIFAR-100 has the coarse label first
    return _checked(path, records[:, version.label_bytes :], records[:, at], version)


def _checked(path: Path, x: np.ndarray, y: np.ndarray, version: Version) -> Labelled:
    if y.shape != (len(x),) or not len(x):
        raise InputError(f"{path}: {y.size} labels for {len(x)} images; fetch it again")
    if not 0 <= y.min() <= y.max() < version.classes:
        wrong = f"labels from {y.min()} to {y.max()}, they must be 0 to {version.classes - 1}"
        raise InputError(f"{path}: {wrong}; fetch it again")
    return x.reshape(-1, 3, 32, 32), y.astype(np.int64)


def _class_names(given: Path, path: Path, version: Version, files: dict[str, str]) -> tuple[str, ...] | None:
    """Read the class names if their file is there; it is not needed."""
    if not path.is_file():
        return None
    found = _content(noted(_small(held_in(given, path)), files)).decode(errors="replace").split()
    if len(found) != version.classes or any("\0" in name for name in found):
        raise InputError(f"{path}: does not hold the names of {version.classes} classes; fetch it again")
    return tuple(found)


def _small(path: Path) -> Path:
    """Return a path; refuse a file that is larger than any of the publisher's."""
    if path.is_file() and (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(f"{path}: {size:,} bytes; the publisher's largest has 155 million, fetch it again")
    return path


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
