"""A link that is a folder, which anything may synchronise: rsync, a cloud folder, a memory stick.

The coordinator writes to `LINK/SITE/down`, the site to `LINK/SITE/up`. SITE is the first 16 digits of the
site's key. Each file is written once, by one side. Times, locks, the order of names and all other names mean
nothing. Anyone may plant files there: links are not followed, and only plain files are read.

Files of a link are not flushed to the disk: the outbox has the same bytes there. After a power failure a
party starts again. It compares its files on the link with the outbox, and writes again what is not whole.
The other party reads no letter that is not whole.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from mpifl.common import InputError
from mpifl.wings.sites.letters.letter_format import AT_ONCE
from mpifl.wings.sites.letters.letter_names import NAME, Blocked, FileMark, NotThere
from mpifl.wings.sites.letters.piece_files import STEP, write_cached

_ASIDE = re.compile(rf"\.{NAME.pattern}\.partial", re.ASCII)
_NO_RENAME = (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL)
_BLOCKED = (errno.ENOTDIR, errno.ELOOP)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_FOLDER_THERE = (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)
_TRIES = 8
"""How often a file is written that someone removes or renames meanwhile, or whose folder vanishes."""
DIGITS = 16
"""Digits of a site's key that name its folder."""


class FolderLink:
    """One end of a folder.

    Args:
        link: The folder of the run, which holds the invitation.
        site: The site's public key.
        outgoing: Where this end writes: `down` for the coordinator, `up` for the site.
    """

    threads: int = AT_ONCE

    def __init__(self, link: Path, site: str, outgoing: Literal["down", "up"]) -> None:
        self._link, self._site = link, site[:DIGITS]
        self._out, self._in = outgoing, "up" if outgoing == "down" else "down"
        self._hashed: dict[str, FileMark] = {}
        """The marks of own files whose content was compared."""
        self._staged: dict[str, FileMark] = {}
        """The marks of pieces that lie aside until they are put."""
        self._remove_asides()

    def put(self, name: str, source: Path) -> None:
        """Have a file there, with the content of `source`; see `LetterLink.put`."""
        for left in reversed(range(_TRIES)):
            try:
                return self._have(name, source)
            except OSError as error:
                if left and isinstance(error, FileNotFoundError):
                    continue
                where, why = self._path(self._out), error.strerror or error
                if str(error.filename) != str(source) and (what := _passing(error)):
                    raise Blocked(f"{where / name}: {what}, and letters go on") from None
                if error.errno in _BLOCKED and self._link.is_dir():
                    what = "it or its parent is no folder; remove what lies there, and letters go on"
                    raise Blocked(f"{where}: {what}") from None
                what = f"cannot be written ({why}); make {where} writable"
                raise InputError(f"{where / name}: {what}") from None

    def stage(self, name: str, content: memoryview) -> None:
        """Write a piece aside; see `LetterLink.stage`. What fails here is done, or told, by `put`."""
        aside = _aside(name)
        with suppress(OSError), self._folder(self._out, make=True) as at:
            try:
                with os.fdopen(_created(at, aside), "wb", buffering=0) as file:
                    write_cached(file.fileno(), content)
                self._staged[name] = _mark(os.stat(aside, dir_fd=at, follow_symlinks=False))
            except OSError:
                _unlink(at, aside)

    def unstage(self) -> None:
        """Remove what was staged and not put."""
        staged, self._staged = [*self._staged], {}
        with suppress(OSError), self._folder(self._out) as at:
            for name in staged:
                _unlink(at, _aside(name))

    def names(self, own: bool = False) -> Mapping[str, FileMark]:
        """Return names and marks of plain files with names of letters; see `LetterLink.names`."""
        found = {}
        with suppress(OSError), self._folder(self._out if own else self._in) as at, os.scandir(at) as entries:
            for entry in entries:
                if NAME.fullmatch(entry.name):
                    with suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            found[entry.name] = _mark(status)
        return found

    def get(self, name: str, start: int, length: int, own: bool = False) -> bytes:
        """Return bytes of a file of the other side, or of an own one; see `LetterLink.get`."""
        try:
            with (
                self._folder(self._out if own else self._in) as at,
                os.fdopen(_opened(name, at), "rb") as file,
            ):
                file.seek(start)
                return file.read(length)
        except OSError as error:
            raise NotThere(f"{name}: {error.strerror or error}") from None

    def remove(self, name: str) -> None:
        """Remove an own file, if it is there."""
        self._hashed.pop(name, None)
        with suppress(OSError), self._folder(self._out) as at:
            os.unlink(name, dir_fd=at)

    def told(self, name: str) -> str:
        """Return the path of a file of the other side."""
        return str(self._path(self._in) / name)

    def _path(self, side: str) -> Path:
        return self._link / self._site / side

    @contextmanager
    def _folder(self, side: str, make: bool = False) -> Iterator[int]:
        """Open a side's folder, but not through a link that someone planted below the run's folder."""
        at = os.open(self._link, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in (self._site, side):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=at)
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = inner
            yield at
        finally:
            os.close(at)

    def _remove_asides(self) -> None:
        with suppress(OSError), self._folder(self._out) as at, os.scandir(at) as entries:
            for name in [entry.name for entry in entries if _ASIDE.fullmatch(entry.name)]:
                with suppress(OSError):
                    os.unlink(name, dir_fd=at)

    def _have(self, name: str, source: Path) -> None:
        with self._folder(self._out, make=True) as at:
            if not self._is_there(at, name, source):
                self._write(at, name, source)
                self._hashed[name] = _mark(os.stat(name, dir_fd=at, follow_symlinks=False))

    def _is_there(self, at: int, name: str, source: Path) -> bool:
        """Return whether an own file has its content; it is read only when its mark is another."""
        try:
            file = _opened(name, at)
        except OSError:
            return False
        with os.fdopen(file, "rb") as held:
            mark = _mark(os.fstat(held.fileno()))
            if self._hashed.get(name) == mark:
                return True
            if mark[0] != source.stat().st_size:
                return False
            with source.open("rb") as wanted:
                steps = range(0, mark[0], STEP)
                same = all(held.read(STEP) == wanted.read(STEP) for _ in steps)
        if same:
            self._hashed[name] = mark
        return same

    def _write(self, at: int, name: str, source: Path) -> None:
        """Write a file aside, if it is not staged, and rename it. Write it at once where that is refused."""
        aside = _aside(name)
        try:
            if not self._is_staged(at, name):
                _unlink(at, aside)
                _copy(at, aside, source)
            try:
                os.rename(aside, name, src_dir_fd=at, dst_dir_fd=at)
            except OSError as error:
                if error.errno not in _NO_RENAME:
                    raise
                _unlink(at, name)
                _copy(at, name, source)
        finally:
            _unlink(at, aside)

    def _is_staged(self, at: int, name: str) -> bool:
        """Return whether a piece lies aside as this life has written it."""
        if (mark := self._staged.pop(name, None)) is None:
            return False
        with suppress(OSError):
            return mark == _mark(os.stat(_aside(name), dir_fd=at, follow_symlinks=False))
        return False


def _passing(error: OSError) -> str:
    """Return what is wrong with a link for a while, and what would do; "" for other errors."""
    cannot = f"cannot be written ({error.strerror or error})"
    if error.errno in _FOLDER_THERE:
        return "a folder lies in its place; remove it"
    if error.errno in _READ_ONLY:
        return f"{cannot}; let this user write there"
    return f"{cannot}; make room" if error.errno in _FULL else ""


def _aside(name: str) -> str:
    return f".{name}.partial"


def _created(at: int, name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=at)


def _copy(at: int, name: str, source: Path) -> None:
    with os.fdopen(_created(at, name), "wb") as file, source.open("rb", buffering=0) as given:
        while part := given.read(STEP):
            write_cached(file.fileno(), memoryview(part))


def _opened(name: str, at: int) -> int:
    """Open a plain file to read it.

    Raises:
        OSError: it is not there, or is a link, a pipe or a folder.
    """
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "it is not a plain file")


def _unlink(at: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=at)


def _mark(status: os.stat_result) -> FileMark:
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
