"""What the sources share: where known data lies, files with their checksums, values that must be finite."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from data_prep.dataset import Rows, all_seen, unseen
from mpifl.common import InputError, check_there, digest_of as content_digest, sha256_of


def known_folder(name: str, data: Path | None, holds: str) -> Path:
    """Return the folder given, or `$MPIFL_DATA/<name>`; `holds` says in a message which folder that is."""
    if data is not None:
        return data
    if root := os.environ.get("MPIFL_DATA"):
        return Path(root) / name
    raise InputError(f"--data: not given; name the folder {holds}, or set MPIFL_DATA to its parent")


def needed(name: str, data: Path | None, example: str) -> Path:
    """Return the path that is given; raise InputError with an example if none is, and if it is not there."""
    if data is None:
        raise InputError(f"--data: not given; '{name}' needs it, for instance --data {example}")
    check_there(data)
    return data


def held_in(folder: Path, path: Path) -> Path:
    """Return a path below a folder that is named; raise InputError if a link leads out of it.

    Such a folder may come from anybody, and links in it lead to files that nobody named.
    """
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{path}: a link that leads out of {folder}; put what it leads to there")
    return path


def noted(path: Path, files: dict[str, str]) -> Path:
    """Note a file's sha256 in `files` and return its path; raise InputError if it cannot be read.

    It is noted by its name, or where another file has that name by its folder, too: `./` for the one we are
    in.
    """
    try:
        files[_called(path, files)] = sha256_of(path)
    except OSError as error:
        raise unreadable(path, error) from None
    return path


def _called(path: Path, files: Collection[str]) -> str:
    return path.name if path.name not in files else f"{path.parent}/{path.name}"


class Digests(Mapping[str, str]):
    """The sha256 of files as `noted` has them, of which large ones are still looked through: who asks waits.

    Each is looked through by a thread of its own, beside what else is done with it.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[Path, Future[str]]] = {}

    def note(self, path: Path, check: Callable[[], None] | None = None) -> None:
        """Begin with a file; raise InputError if it cannot be read. What `check` raises, who asks is told."""
        try:
            file = path.open("rb")
        except OSError as error:
            raise unreadable(path, error) from None
        self._begin(_called(path, self._found), path, partial(_content, file, check))

    def note_all(self, path: Path) -> None:
        """Begin with a file, or with one digest over what a folder holds, as `noted_all` has it."""
        if path.is_dir():
            self._begin(f"{path.resolve().name}/**", path, partial(digest_of, path, _seen(path)))
        else:
            self.note(path)

    def _begin(self, name: str, path: Path, digest: Callable[[], str]) -> None:
        future: Future[str] = Future()
        self._found[name] = path, future
        # no thread of a pool: Python would wait for it, though the command has ended in an error
        threading.Thread(target=_deliver, args=(digest, future), daemon=True).start()

    def __getitem__(self, name: str) -> str:
        path, future = self._found[name]
        try:
            return future.result()
        except OSError as error:
            raise unreadable(path, error) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _content(file: BinaryIO, check: Callable[[], None] | None) -> str:
    """Look through an open file, and close it."""
    with file:
        if check is not None:
            check()
        return content_digest(file)


def _deliver(digest: Callable[[], str], future: Future[str]) -> None:
    try:
        future.set_result(digest())
    except Exception as error:  # whatever it is: who asks would wait for ever
        future.set_exception(error)


def noted_all(path: Path, files: dict[str, str]) -> None:
    """Note the sha256 of a file, or one over what a folder holds, hidden files left out, as
    `FOLDER/**`."""
    if not path.is_dir():
        noted(path, files)
        return
    files[f"{path.resolve().name}/**"] = digest_of(path, _seen(path))


def _seen(folder: Path) -> list[Path]:
    """Return the files below a folder that are not hidden."""
    there = (one for one in folder.rglob("*") if one.is_file())
    return sorted(one for one in there if not any(part[0] == "." for part in one.relative_to(folder).parts))


def digest_of(folder: Path, paths: Sequence[Path]) -> str:
    """Return one sha256 over the names and contents of files in a folder."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(f"{path.relative_to(folder).as_posix()}\n{sha256_of(path)}\n".encode())
        except OSError as error:
            raise unreadable(path, error) from None
        except UnicodeEncodeError:
            shown = str(path).encode("utf-8", "replace").decode()
            raise InputError(f"{shown}: the name is not UTF-8; rename it") from None
    return digest.hexdigest()


def unreadable(path: Path, error: OSError) -> InputError:
    """Say that the file system refused a file."""
    return InputError(f"{path}: cannot be read ({error.strerror or error}); --data must name what holds it")


class FiniteRows:
    """Rows that are looked through for what is no number to a model as they are read:
    no pass of its own over the file."""

    def __init__(self, rows: Rows, where: str, scale: float | None) -> None:
        self.rows, self.where, self._scale = rows, where, scale
        self.shape, self.dtype = rows.shape, rows.dtype
        self.sequential, self.step = getattr(rows, "sequential", False), getattr(rows, "step", 1)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: Any) -> np.ndarray:
        x = np.asarray(self.rows[at])
        if not all_seen(x, self._scale):
            wrong, examples = np.argwhere(unseen(x, self._scale)), np.arange(self.shape[0])[at]
            first = wrong[np.argmin(examples[wrong[:, 0]])]  # rows may be asked for in any order
            raise unseeable(self.where, x[tuple(first)], int(examples[first[0]]))
        return x


def unseeable(where: str, value: float, example: int) -> InputError:
    """Say that a value of an example is no number to a model."""
    what, remedy = "NaN or infinite values, first", "fill or drop them"
    if np.isfinite(value):
        what, remedy = f"values beyond float32, first {value:.4g}", "use another unit"
    return InputError(f"{where} has {what} in example {example}; {remedy}")


def finite(rows: Rows, where: str, scale: float | None = None) -> Rows:
    """Guard rows of floats against NaN, infinite values, and those that float32 cannot hold; others have
    none."""
    return FiniteRows(rows, where, scale) if rows.dtype.kind == "f" else rows
