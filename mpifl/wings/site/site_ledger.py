"""An append-only file of lines, to which several processes add.

A line is on the disk when `record` or `sync` returns; other processes may see it earlier. One process at a
time reads or writes. A line that a crash left incomplete does not count, and the next line overwrites it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from mpifl.common import InputError
from mpifl.wings.site.site_directory import fsync_folder

Line = TypeVar("Line", bound=BaseModel)


class SiteLedger(Generic[Line]):
    """A ledger of records of one kind, each a line of JSON.

    Attributes:
        path: The path of the file.
        kept: All lines that were read so far, in their order.
    """

    def __init__(self, path: Path, kind: type[Line], take: Callable[[Line], None]) -> None:
        """Open a ledger. `take` is called once for each line that is read, in order."""
        self.path = path
        self.kept: list[Line] = []
        self._kind = kind
        self._take = take
        self._read = 0
        """How many bytes of complete lines were read."""
        self._held: int | None = None
        """The open file, while it is locked."""
        self._unsynced = False
        """Whether lines that were added or read may not be on the disk yet."""
        self._broken: InputError | None = None
        """Why a sync failed. No later sync helps: the system may have dropped the data it could not write."""

    def catch_up(self) -> None:
        """Read the new lines.

        Raises:
            InputError: a line is damaged, or lines are missing.
        """
        if self.path.exists():
            with self._locked() as file:
                self._take_in(file)

    def mark(self) -> tuple[int, str]:
        """Return how many lines there are, and the sha256 of the last one; "" if there is none."""
        self.catch_up()
        return len(self.kept), self._digest(len(self.kept))

    def had(self, lines: int, sha256: str) -> bool:
        """Return whether a mark of before is one of this ledger: so many lines or more, and that one."""
        self.catch_up()
        return lines <= len(self.kept) and self._digest(lines) == sha256

    def _digest(self, lines: int) -> str:
        line = self.kept[lines - 1].model_dump_json() if lines else ""
        return hashlib.sha256(line.encode()).hexdigest() if lines else ""

    def record(self, make: Callable[[], Line | None]) -> None:
        """Write a line, and return when it is on the disk; see `add`.

        Raises:
            InputError: it cannot be written.
        """
        self.add(make)
        self.sync()

    def add(self, make: Callable[[], Line | None]) -> None:
        """Write a line, which is on the disk when `sync` returns.

        Args:
            make: Makes the line from the ledger's present content, while no other process can write. It
                returns None to add no line.

        Raises:
            InputError: it cannot be written.
        """
        with self._writing(), self._locked() as file:
            self._take_in(file)
            made = make()
            self._unsynced = True  # even without a new line: another process may not have synced its own
            if made is not None:
                self._append(file, made.model_dump_json().encode() + b"\n")
                self._take_in(file)

    def sync(self) -> None:
        """Return when all lines that `add` wrote or found are on the disk.

        Raises:
            InputError: they cannot be written.
        """
        if not self._unsynced:
            return
        with self._writing(), self._opened() as file:
            try:
                os.fsync(file)
            except OSError as error:
                self._broken = self._refusal(error)
                raise
        self._unsynced = False

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn errors of the system into one line that says that the ledger cannot be written."""
        if self._broken is not None:
            raise self._broken
        try:
            yield
        except OSError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: OSError) -> InputError:
        why = f"{error.strerror or error}"
        return InputError(f"{self.path}: cannot be written ({why}); nothing is answered")

    def _append(self, file: int, line: bytes) -> None:
        os.ftruncate(file, self._read)  # remove an incomplete line of a crash: its answer was never sent
        os.lseek(file, 0, os.SEEK_END)
        if os.write(file, line) != len(line):
            raise OSError("the disk is full")

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open and lock the file, so that only one process at a time uses it."""
        if self._held is not None:
            yield self._held
            return
        new = not self.path.exists()
        with self._opened() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if new:
                fsync_folder(self.path.parent)
            self._held = file
            try:
                yield file
            finally:
                self._held = None

    @contextmanager
    def _opened(self) -> Iterator[int]:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            yield file
        finally:
            os.close(file)

    def _take_in(self, file: int) -> None:
        """Read the new complete lines."""
        size = os.fstat(file).st_size
        if size < self._read:
            raise InputError(f"{self.path}: is shorter than it was; lines of a ledger are never taken away")
        fresh = os.pread(file, size - self._read, self._read)
        for line in fresh[: fresh.rfind(b"\n") + 1].splitlines(keepends=True):
            self._read += len(line)
            try:
                found = self._kind.model_validate_json(line)
            except ValidationError:
                what = f"line {len(self.kept) + 1} is not a line of a ledger; put back a copy that is whole"
                raise InputError(f"{self.path}: {what}") from None
            self.kept.append(found)
            self._take(found)
