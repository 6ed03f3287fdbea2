"""A disk that fails, that is full, or that loses what was not flushed when the power failed.

Fails and loses what ranks of a world write to their files; all else that is written is real.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tests.simulated.world import here, simulated

KEPT = 8
"""States of the folder that are remembered."""


class Disk:
    """The disk of one world.

    What was not flushed may be lost with the power. fsync(2): "Calling fsync() does not necessarily ensure
    that the entry in the directory containing the file has also reached disk." So the latest renames may be
    lost, in their order, and of a file all that was written since it was flushed.

    Args:
        folder: The run folder.
        fails: "full" or "broken", and the first and the last of the writes that fail; None if none does.
        remembers: Whether it can tell what was on it when the power failed.
    """

    def __init__(self, folder: Path, fails: tuple[str, int, int] | None, remembers: bool) -> None:
        self.folder, self.fails, self._remembers = folder, fails, remembers
        self.written: dict[str, int] = {"full": 0, "broken": 0}
        self._flushed: dict[str, int] = {}
        self.states: deque[dict[str, bytes]] = deque([{}], KEPT)
        self.refused = 0

    def check(self, kind: str) -> None:
        """Fail a write or a flush if it is one that does."""
        self.written[kind] += 1
        if self.fails and self.fails[0] == kind and self.fails[1] <= self.written[kind] <= self.fails[2]:
            self.refused += 1
            number = errno.ENOSPC if kind == "full" else errno.EIO
            raise OSError(number, os.strerror(number))

    def flushed(self, path: str) -> None:
        """Note that a file is on the disk as it is."""
        self._flushed[path] = os.stat(path).st_size  # noqa: PTH116

    def renamed(self, path: str, to: str) -> None:
        """Note that a file has another name; its content is on the disk as far as it was flushed."""
        self._flushed[to] = self._flushed.pop(path, 0)
        self.changed()

    def changed(self) -> None:
        """Remember what is on the disk."""
        if self._remembers:
            files = (Path(place) / name for place, _, names in os.walk(self.folder) for name in names)
            self.states.append(
                {
                    str(file.relative_to(self.folder)): file.read_bytes()[: self._flushed.get(str(file), 0)]
                    for file in files
                }
            )

    def restore(self, lost: int) -> None:
        """Have the folder as it is after the power failed, without the latest changes."""
        for name, content in self.states[max(len(self.states) - 1 - lost, 0)].items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)


class _File:
    """A file that a rank writes."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, piece: Any) -> int:
        """Write a piece; half of it if there is no room."""
        try:
            self._disk.check("full")
        except OSError:
            content = memoryview(piece).cast("B")
            self._file.write(content[: len(content) // 2])
            raise
        written: int = self._file.write(piece)
        if "a" in self._file.mode:
            self._disk.changed()
        return written


def _open(path: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
    file = open(path, mode, *given, **named)  # noqa: SIM115, PTH123
    writes = simulated() is not None and mode[0] in "xa"
    return _File(file, here()[0].disk) if writes else file


def _flush(real: Callable[[int], None]) -> Callable[[int], None]:
    def flush(number: int) -> None:
        if simulated() is None:
            real(number)
        else:
            disk = here()[0].disk
            disk.check("broken")
            disk.flushed(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115

    return flush


def _rename(real: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def rename(path: Any, to: Any) -> None:
        real(path, to)
        if simulated() is not None:
            here()[0].disk.renamed(str(path), str(to))

    return rename


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Have simulated ranks write to the disks of their worlds; it is memory, and need not be flushed."""
    with contextlib.ExitStack() as stack:
        for room in ("mpifl.common.files", "mpifl.report.observers.jsonlines"):
            stack.enter_context(mock.patch(f"{room}.open", _open, create=True))
        stack.enter_context(mock.patch.object(os, "fsync", _flush(os.fsync)))
        stack.enter_context(mock.patch.object(os, "replace", _rename(os.replace)))
        yield
