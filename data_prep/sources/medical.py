"""What DICOM and NIfTI share: the libraries that read them, tables of labels, files below a folder."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.sources.aims import Wanted
from data_prep.sources.reading import held_in, noted, unreadable
from mpifl.common import InputError
from mpifl.common.machine import floors

MOST_NUMBERS = 1 << 28
"""Numbers of an example."""


def library(name: str, source: str) -> Any:
    """Return a library; raise InputError where it is not installed, or too old."""
    try:
        found = importlib.import_module(name)
    except ImportError:
        raise InputError(f"SOURCE: '{source}' needs {name}; pip install 'mpifl[medical]'") from None
    floors.hold("medical")
    return found


def said(error: Exception) -> str:
    """Return what a library says of a file, in one line of 100 characters at most."""
    return " ".join(str(error).split())[:100] or type(error).__name__


def files_below(folder: Path, skipped: Sequence[str] = ()) -> list[Path]:
    """Return all files below a folder, by their paths; hidden ones and those of these names left out.

    Raises:
        InputError: there are none, it is no folder, or a link leads out of it.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; --data must name the one with the files")
    found = [
        held_in(folder, path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in skipped and not _hidden(path.relative_to(folder))
    ]
    if not found:
        raise InputError(f"{folder}: has no files in it; --data must name the folder that has them")
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


class Labels:
    """A CSV table of two columns: what names an example, and its label.

    Attributes:
        key: The name of the first column.
    """

    def __init__(self, path: Path, files: dict[str, str]) -> None:
        noted(path, files)
        self._path, self._of = path, dict[str, str]()
        for number, row in enumerate(_lines(path), 1):
            if len(row) != 2:
                told = "a table of labels has two columns: what names an example, and its label"
                raise InputError(f"{path}: line {number}: {len(row)} columns; {told}")
            name, label = (word.strip() for word in row)
            if number == 1:
                self.key = name
            elif name in self._of or not (name and label):
                wrong = "is there twice" if name in self._of else "lacks its name or its label"
                raise InputError(f"{path}: line {number}: '{name}' {wrong}; correct it")
            else:
                self._of[name] = label
        if not self._of:
            raise InputError(f"{path}: has no labels; write a header, and a line for each example")

    def targets(self, names: Iterable[str], wanted: Wanted) -> np.ndarray:
        """Return the label of each example [n]: texts, or numbers where these are wanted as values."""
        known = [self._one(name) for name in names]
        if wanted.kind != "values":
            return np.array(known)
        try:
            return np.array([float(label) for label in known])
        except ValueError as error:
            raise InputError(f"{self._path}: {error}; targets=values takes numbers") from None

    def _one(self, name: str) -> str:
        if name not in self._of:
            raise InputError(f"{self._path}: has no line for {self.key} '{name[:80]}'; write its label")
        return self._of[name]


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from (row for row in csv.reader(file, strict=True) if row)
    except OSError as error:
        raise unreadable(path, error) from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not CSV in UTF-8 ({error}); write it again") from None
