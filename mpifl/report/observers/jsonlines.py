"""`metrics.jsonl`: one object a round."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from mpifl.common import no_link
from mpifl.report.observers.observer import Observer, Record
from mpifl.run.folder import encode_record


class JsonLines(Observer):
    """Append each round to `metrics.jsonl` and flush it, so that a killed run has lost no line.

    Lines that the disk has no room for are kept, told of once, and written with a later round's.
    """

    def __init__(self, run: Path) -> None:
        self._path = run / "metrics.jsonl"
        self._left, self._told = b"", False

    def round(self, record: Record) -> None:
        """Append one line."""
        self._left += encode_record(record)
        self._write()

    def flush(self) -> None:
        """Have the disk keep all lines: what is only appended is lost when the power fails, and what has
        found no room when the server dies."""
        if self._left:
            _append(self._path, self._left)
            self._left = b""
        with suppress(FileNotFoundError), open(self._path, "rb", opener=no_link) as file:
            os.fsync(file.fileno())

    def end(self) -> None:
        """Write what is left, if there is room now."""
        if self._left:
            self._write()

    def _write(self) -> None:
        try:
            _append(self._path, self._left)
            self._left = b""
        except OSError as error:
            if not self._told:
                reason = f"{self._path}: cannot be written ({error.strerror or error})"
                print(
                    f"{reason}; training continues, its lines follow when there is room",
                    file=sys.stderr,
                    flush=True,
                )
            self._told = True


def _append(path: Path, lines: bytes) -> None:
    """Append lines whole or not at all: the next would make half of one unreadable."""
    with open(path, "ab", buffering=0, opener=no_link) as file:
        end, rest = file.tell(), memoryview(lines)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(end)
            raise
