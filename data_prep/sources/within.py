"""What lies in a folder that is named: files, folders of silos, a part for training and one for testing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from data_prep.sources.reading import held_in
from mpifl.common import InputError

SPLITS = ("train", "test")
"""Folders whose files train, and those of the server's test set."""


def inside(folder: Path, named: Path) -> list[Path]:
    """List what a folder holds, by name, and what is hidden left out; no link may lead out of the one that is
    named."""
    held_in(named, folder)
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                found.append(
                    held_in(named, folder / entry.name) if entry.is_symlink() else folder / entry.name
                )
    return sorted(found)


def silo_folders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder, each of which is a silo's.

    Raises:
        InputError: there are none, or files beside them.
    """
    found = inside(folder, folder) if folder.is_dir() else []
    if not found or not all(path.is_dir() for path in found):
        odd = next((path for path in found if not path.is_dir()), folder)
        told = "silo=parent takes a folder for each silo there, and nothing else"
        raise InputError(f"{odd}: {told}")
    return [path.name for path in found]


def silo_files(folder: Path, endings: Sequence[str]) -> dict[str, list[Path]]:
    """Return the files of a folder, each of which is a silo's, by the silos' names: those of the files, or of
    folders of them.

    Raises:
        InputError: there are none, others, or two are called alike.
    """
    found = dict[str, list[Path]]()
    for path in inside(folder, folder):
        own, name = (inside(path, folder), path.name) if path.is_dir() else ([path], path.stem)
        for one in own or [path]:
            if one.suffix.lower() not in endings or not one.is_file():
                what = f"in a folder with a file for each silo, which end in {' or '.join(endings)}"
                raise InputError(f"{one}: {what}, or with folders of them; move it elsewhere")
        if name in found:
            other = f"{found[name][0].name} is there, too"
            raise InputError(f"{path}: {other}; give each silo's file another name")
        found[name] = own
    if not found:
        raise InputError(f"{folder}: has no files; put one for each silo there, as north{endings[0]}")
    return found


def check_beside(folder: Path, named: Path, taken: Sequence[str], endings: Sequence[str]) -> None:
    """Refuse folders, and files with these endings, that lie beside those taken: they would be left out."""
    for path in inside(folder, named):
        if path.name not in taken and (path.is_dir() or path.suffix.lower() in endings):
            what = f"lies beside {', '.join(taken)[:100]}, and would not be read"
            raise InputError(f"{path}: {what}; put it into one of them, or move it elsewhere")


def is_split(folder: Path) -> bool:
    """Tell whether a folder has one for training and one for testing; either alone is like any other."""
    return all((folder / split).is_dir() for split in SPLITS)
