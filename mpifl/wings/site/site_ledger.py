"""A file of lines that several processes add to, and that nobody changes or takes away.

A line is on the disk when `record` or `sync` returns; other processes see it before. One process at a time
reads or writes. What a crash has torn is no line, and the next line takes its place.
"""

from __future__ import annotations

import fcntl
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
        path: Where it lies.
        kept: All lines that were read so far, in their order.
    """

    def __init__(self, path: Path, kind: type[Line], take: Callable[[Line], None]) -> None:
        """Open a ledger; each line that is read is handed to `take`, once and in its order."""
        self.path = path
        self.kept: list[Line] = []
        self._kind = kind
        self._take = take
        self._read = 0
        """Bytes of whole lines that were read."""
        self._held: int | None = None
        """The open file, while it is locked."""
        self._unsynced = False
        """Whether lines that were added, or gone by, may not be on the disk."""
        self._broken: InputError | None = None
        """Why a sync has failed: the system may have forgotten what it could not write, so no other helps."""

    def catch_up(self) -> None:
        """Read the lines that came since.

        Raises:
            InputError: a line is none, or lines are gone.
        """
        if self.path.exists():
            with self._locked() as file:
                self._take_in(file)

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
            make: Makes the line of what the ledger holds, while no other process can write there. None adds
                none, since what is there says it all.

        Raises:
            InputError: it cannot be written.
        """
        with self._writing(), self._locked() as file:
            self._take_in(file)
            made = make()
            self._unsynced = True  # what is there may be a line that its writer has not synced yet
            if made is not None:
                self._append(file, made.model_dump_json().encode() + b"\n")
                self._take_in(file)

    def sync(self) -> None:
        """Return when all lines that were added, or gone by in `add`, are on the disk.

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
        """Say in one line that the ledger cannot be written."""
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
        os.ftruncate(file, self._read)  # what a crash has torn: its answer never left
        os.lseek(file, 0, os.SEEK_END)
        if os.write(file, line) != len(line):
            raise OSError("the disk is full")

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Lend the file to one process at a time."""
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
        """Read the whole lines that came since."""
        size = os.fstat(file).st_size
        if size < self._read:
            raise InputError(f"{self.path}: is shorter than it was; lines of a ledger are never taken away")
        fresh = os.pread(file, size - self._read, self._read)
        for line in fresh[: fresh.rfind(b"\n") + 1].splitlines(keepends=True):
            self._read += len(line)
            try:
                found = self._kind.model_validate_json(line)
            except ValidationError:
                what = f"line {len(self.kept) + 1} is none of a ledger; put back a copy that is whole"
                raise InputError(f"{self.path}: {what}") from None
            self.kept.append(found)
            self._take(found)
