"""The text of a CSV table in UTF-8, which is taken off the front: line by line, or many lines at once."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator
from pathlib import Path

from data_prep.tables import TableSpec
from data_prep.tables.files.opening import Readable
from mpifl.common import InputError

ROWS = 1 << 14
"""How many rows a piece of a table has at most."""
MOST_PIECE = 1 << 26
"""Characters of a CSV table after which a piece ends."""
MOST_ROW = 1 << 24
"""Characters that a row of a CSV table has fewer of; a field has at most 131,072, Python's own limit."""
CHUNK = 1 << 22
"""Bytes that are read at once, or more."""
MARK = b"\xef\xbb\xbf"
"""Of the order of bytes, which some programs write first."""
END = re.compile(rb"\r\n?|\n")


class Lines:
    """What is left of a table's text.

    Attributes:
        path: The table, for messages.
        taken: How many lines were taken.
        held: Bytes that were read, of which those from `start` on are left.
        ended: Whether there are no others.
    """

    def __init__(self, path: Path, file: Readable, taken: int = 0) -> None:
        self.path, self._file, self.taken = path, file, taken
        self.held, self.start, self.ended = b"", 0, False
        while len(self.held) < len(MARK) and self.more():
            pass
        self.start = len(MARK) * self.held.startswith(MARK)
        self._wide = self.held.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))

    def more(self) -> bool:
        """Read on; tell whether there was anything."""
        if not self.ended:
            left = self.held[self.start :]
            new = self._file.read(max(CHUNK, len(left)))
            self.held, self.start, self.ended = left + new, 0, not new
        return not self.ended

    def take(self, size: int, lines: int) -> bytes:
        """Take bytes, which have so many lines."""
        content = self.held[self.start : self.start + size]
        self.start += size
        self.taken += lines
        return content

    def __iter__(self) -> Iterator[str]:
        while size := self._size():
            line = self.take(size, 1)
            whole = size < 4 * MOST_ROW  # else it is far too long, and may be cut inside a character
            try:
                yield line.decode("utf-8", "strict" if whole else "ignore")
            except UnicodeDecodeError as error:
                what = f"not a CSV table in UTF-8, or damaged ({error})"
                likely = "utf-16" if self._wide else "cp1252"
                remedy = f"export it again, or say encoding = '{likely}' (or another) in the spec"
                raise InputError(f"{self.path}: line {self.taken}: {what}; {remedy}") from None

    def _size(self) -> int:
        """Return how many bytes the next line has with its end; 0 if there is none."""
        seen = 0
        while True:
            found = END.search(self.held, self.start + seen)
            if found and (found.end() < len(self.held) or found[0] != b"\r"):
                return found.end() - self.start
            size = len(self.held) - self.start
            seen = max(size - 1, 0)  # a line feed may follow
            if size >= 4 * MOST_ROW or not self.more():
                return size


class CsvRows:
    """The rows of a CSV table as Python reads them, with the number of each one's last line.

    Args:
        lines: Where they are taken from.
        spec: What its columns mean.
        width: How many columns there are, if that is known.

    Attributes:
        commented: How many comments, so far, have as many values as a row.
    """

    def __init__(self, lines: Lines, spec: TableSpec, width: int = 0) -> None:
        self.commented, self._width, self._delimiter = 0, width, spec.delimiter or ","
        self._lines, self._comment, self._before = lines, spec.comment, lines.taken
        self._row = self._piece = 0  # characters so far
        self._reader = csv.reader(self._seen(), delimiter=self._delimiter, skipinitialspace=True, strict=True)

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        try:
            for row in self._reader:
                self._row = 0
                if row and row != [""]:
                    yield self._before + self._reader.line_num, row
        except csv.Error as error:
            what = f"not a CSV table in UTF-8, or damaged ({error})"
            raise InputError(f"{self._where()}: {what}; export it again") from None

    def piece(self) -> list[tuple[int, list[str]]]:
        """Return the next rows, none at the end."""
        self._piece, numbered = 0, []
        for row in self:
            numbered.append(row)
            if len(numbered) == ROWS or self._piece > MOST_PIECE:
                break
        return numbered

    def _seen(self) -> Iterator[str]:
        for line in self._lines:
            # before it is parsed: a quotation mark in a comment would take the rows below into it
            comment = not self._row and self._comment and line.lstrip(" ").startswith(self._comment)
            self._row += len(line)
            self._piece += len(line)
            if self._row >= MOST_ROW:
                raise InputError(
                    f"{self._where()}: longer than {MOST_ROW:,} characters; export the table again"
                )
            if "\0" in line:
                raise InputError(f"{self._where()}: has a NUL character; export the table again")
            self.commented += bool(comment) and line.count(self._delimiter) + 1 == self._width
            yield "\n" if comment else line

    def _where(self) -> str:
        return f"{self._lines.path}: line {self._lines.taken}"
