"""What the sources share: where known data lies, files with their checksums, values that must be finite."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.model import Rows
from mpifl.common import InputError, sha256_of


def known_folder(name: str, data: Path | None, holds: str) -> Path:
    """Return the folder given, or `$MPIFL_DATA/<name>`; `holds` says in a message which folder that is."""
    if data is not None:
        return data
    if root := os.environ.get("MPIFL_DATA"):
        return Path(root) / name
    raise InputError(f"--data: not given; name the folder {holds}, or set MPIFL_DATA to its parent")


def needed(name: str, data: Path | None, example: str) -> Path:
    """Return the path given; raise InputError with an example if there is none."""
    if data is None:
        raise InputError(f"--data: not given; '{name}' needs it, for instance --data {example}")
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
        files[path.name if path.name not in files else f"{path.parent}/{path.name}"] = sha256_of(path)
    except OSError as error:
        raise unreadable(path, error) from None
    return path


def unreadable(path: Path, error: OSError) -> InputError:
    """Say that the file system refused a file."""
    return InputError(f"{path}: cannot be read ({error.strerror or error}); --data must name what holds it")


class FiniteRows:
    """Rows that are looked through for NaN and infinite values as they are read:
    no pass of its own over the file."""

    def __init__(self, rows: Rows, where: str) -> None:
        self.rows, self.where = rows, where
        self.shape, self.dtype = rows.shape, rows.dtype
        self.sequential, self.step = getattr(rows, "sequential", False), getattr(rows, "step", 1)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: Any) -> np.ndarray:
        x = np.asarray(self.rows[at])
        with np.errstate(all="ignore"):
            # finite unless a term is not (or it overflows: then look again)
            total = np.sum(x, dtype=np.float64)
        if not np.isfinite(total) and not (finite := np.isfinite(x)).all():
            row = int(np.argwhere(~finite)[0, 0])
            example = np.arange(self.shape[0])[at][row]
            raise InputError(
                f"{self.where} has NaN or infinite values, first in example {example}; fill or drop them"
            )
        return x


def finite(rows: Rows, where: str) -> Rows:
    """Guard rows of floats against NaN and infinite values; others have none."""
    return FiniteRows(rows, where) if rows.dtype.kind == "f" else rows
