"""What separates the values of a CSV file: as the spec says, or by the names in its first line."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Collection, Iterable
from pathlib import Path

from data_prep.tables import TableSpec
from data_prep.tables.files.lines import Lines
from data_prep.tables.files.opening import opened
from mpifl.common import InputError

DELIMITERS = ",;\t|"
"""What is looked for, in this order."""
MOST_NAMES = 1 << 20
"""Characters of a table's first line that are looked at."""


def separator(spec: TableSpec) -> str:
    """Return what separates values by a spec that says it; a comma by another."""
    return spec.delimiter or DELIMITERS[0]


def separated(path: Path, spec: TableSpec, given: Collection[str] = ()) -> TableSpec:
    """Return a spec that says what separates the values of a file.

    Where it does not say so before, it is that by which the first line names all columns of the spec, but for
    those that are `given` by folders. If none does so, it is what the line has most of.
    """
    if spec.delimiter is not None:
        return spec
    line = first_line(path, spec.encoding, spec.comment or "")
    wanted = {spec.in_file(name) for name in spec.columns} - {*given}
    with contextlib.suppress(csv.Error):  # what reads the rows refuses the line
        for one in DELIMITERS:
            names = _parted(line, one)
            if len(names) == len(spec.names) if spec.names else wanted <= {*names}:
                return spec.model_copy(update={"delimiter": one})
    return spec.model_copy(update={"delimiter": likely(line)})


def likely(line: str) -> str:
    """Return the delimiter that a line has most of."""
    return max(DELIMITERS, key=line.count)


def header_of(path: Path, encoding: str) -> tuple[list[str], str]:
    """Return the names in the first line of a CSV file, and what separates them.

    Raises:
        InputError: the line names nothing, or is none of a CSV table.
    """
    line = first_line(path, encoding)
    try:
        names = _parted(line, delimiter := likely(line))
    except csv.Error as error:
        raise InputError(f"{path}: its first line is not that of a CSV table ({error})") from None
    if not line:
        raise InputError(f"{path}: is empty; it must have a line of names, and rows")
    if not any(names):
        raise InputError(f"{path}: its first line names no columns")
    return names, delimiter


def first_line(path: Path, encoding: str, comment: str = "") -> str:
    """Return the first line of a CSV file that is no comment and not blank; refuse a NUL character."""
    with opened(path, encoding) as file:
        skipped = (comment,) if comment else ()
        line = _whole_line(
            one for one in Lines(path, file) if one.strip() and not one.lstrip(" ").startswith(skipped)
        )
    if "\0" in line:
        raise InputError(f"{path}: line 1: has a NUL character; export the table again in UTF-8")
    return line


def _parted(line: str, delimiter: str) -> list[str]:
    """Return the words of a line."""
    text = io.StringIO(line, newline="")
    words = next(csv.reader(text, delimiter=delimiter, skipinitialspace=True), [])
    return [word.strip() for word in words]


def _whole_line(lines: Iterable[str]) -> str:
    """Return the first line, with those that it continues in while a name in quotes does."""
    found = ""
    for line in lines:
        found += line
        if found.count('"') % 2 == 0 or len(found) > MOST_NAMES:
            break
    return found[:MOST_NAMES]
