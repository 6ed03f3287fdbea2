"""Texts that a language model is to judge, as the source `jsonl` reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from data_prep.sources.jsonl import ENDINGS, TextLine, text_lines
from data_prep.sources.text import text_of
from data_prep.sources.within import silo_files
from mpifl.common import InputError, check_there

LINES = ".jsonl"


def texts_in(path: Path, silo: str = "") -> Iterator[tuple[str, str, TextLine]]:
    """Yield texts with their names and the places where they stand.

    A `.txt` file is a text, and so is each line of a `.jsonl` file, where `silo` is the field of silos. A
    folder has such files, or folders of them.

    Raises:
        InputError: there are none, or one cannot be read.
    """
    check_there(path, "--texts")
    if not path.is_dir():
        yield from _of_file(path, silo)
        return
    for name, files in silo_files(path, ENDINGS).items():
        for file in files:
            own = file.name if file.parent == path else f"{name}/{file.name}"
            for number, place, line in _of_file(file, ""):
                yield f"{own}:{number}" if file.suffix.lower() == LINES else own, place, line


def _of_file(path: Path, silo: str) -> Iterator[tuple[str, str, TextLine]]:
    if path.suffix.lower() == LINES:
        for line in text_lines(path, silo, ""):
            yield str(line.number), f"{path}: line {line.number}", line
    elif path.suffix.lower() == ".txt":
        yield path.name, str(path), TextLine(1, "", text_of(path), None, None)
    else:
        raise InputError(f"--texts {path}: is not a .txt or .jsonl file, nor a folder of them; name one")
