"""The names of a table's columns: those that a spec wants, and where they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from data_prep.tables import TableSpec
from data_prep.tables.files.delimiters import DELIMITERS
from mpifl.common import InputError, did_you_mean


def positions(path: Path, own: Sequence[str], spec: TableSpec, given: Collection[str] = ()) -> dict[str, int]:
    """Return the position of every wanted column of a file's own, by its name in the spec; others are given
    to it by its folders.

    Raises:
        InputError: a column is not there, or there twice.
    """
    names = [*own, *given]
    if not names:
        raise InputError(f"{path}: is empty; it must have a line of names, and rows")
    there_are = Counter(names)
    for name in map(spec.in_file, spec.columns):
        if there_are[name] != 1:
            hint = _other_delimiter(own, spec) or did_you_mean(name, names)
            lacking = f"is not there; {hint}there are {', '.join(names)[:300]}"
            found = "is there twice; rename one, or remove it" if name in there_are else lacking
            raise InputError(f"{path}: column '{name}' of the spec {found}")
    wanted = {spec.in_file(name): name for name in spec.columns}
    return {wanted[name]: place for place, name in enumerate(own) if name in wanted}


def _other_delimiter(own: Sequence[str], spec: TableSpec) -> str:
    """Say that a first line is parted by another delimiter than the spec's, if it seems to be."""
    likely = max(DELIMITERS, key=own[0].count) if len(own) == 1 else ""
    if not likely or likely not in own[0]:
        return ""
    said = f"the spec says delimiter = {spec.delimiter!r}: remove it"
    return f"the line is separated by {likely!r}, {said}; "
