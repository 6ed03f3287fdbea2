"""The files of one site at the coordinator's server: what it may see, put and remove."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from mpifl.common import InputError
from mpifl.wings.sites.https.link_requests import MOST_FILES, STEP, Have, Listing, text_of
from mpifl.wings.sites.letters import FileMark, FolderLink, NotThere

LEAST = 4096
"""Bytes for which a file counts at least."""
_READ = 1 << 20


class RequestRefused(Exception):
    """A request is refused: an HTTP status, and a line for the site."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


class SiteShelf:
    """One site's two folders. Several connections may use it at once.

    A file that arrives is kept aside, one at a time, until it is whole and has its digest. So a cut
    connection costs no more than what was on its way.

    Args:
        link: The folder of the run.
        site: The site's public key.
        aside: The path of the file that arrives.
        quota: Bytes of the site's own files, at most.
    """

    def __init__(self, link: Path, site: str, aside: Path, quota: int) -> None:
        self._link, self._aside, self._quota = FolderLink(link, site, "up"), aside, quota
        self._lock, self._arriving, self._have = threading.Lock(), ("", 0, ""), 0
        self._digests: dict[str, tuple[FileMark, str]] = {}

    def listing(self) -> Listing:
        """Return the names and marks of both sides."""
        up, down = ({name: [*mark] for name, mark in self._link.names(own).items()} for own in (True, False))
        if len(down) > MOST_FILES:
            raise RequestRefused(
                507, f"the coordinator has more than {MOST_FILES} files here; it is to tidy up"
            )
        return Listing(up=up, down=down)

    def read(self, name: str, start: int, mark: str) -> tuple[int, Iterator[bytes]]:
        """Return how many bytes a letter of the coordinator has from a place on, and these bytes.

        Raises:
            RequestRefused: there is no such file, or it has another mark.
        """
        found = self._link.names().get(name)
        if found is None or text_of(found) != mark or start > found[0]:
            raise RequestRefused(404, f"{name}: is not there, or is another file now")
        return found[0] - start, self._bytes(name, start, found[0])

    def put(self, name: str, size: int, sha256: str, start: int, body: Iterable[bytes]) -> Have:
        """Take bytes of a file from a place on; return how much is there. Bytes that do not follow what is
        there are read, and dropped.

        Raises:
            RequestRefused: the site has no room for it, or the folder cannot be written.
        """
        what, at = (name, size, sha256), start
        with self._lock:
            if (there := self._there(name, size, sha256)) is None:
                self._begin(what)
        for part in body:
            with self._lock:
                if there is None and self._arriving == what and self._have == at and at + len(part) <= size:
                    with self._aside.open("ab") as file:
                        file.write(part)
                    self._have = at = at + len(part)
        with self._lock:
            return there or self._finished(what)

    def remove(self, name: str) -> None:
        """Remove a file of the site."""
        with self._lock:
            self._link.remove(name)
            self._digests.pop(name, None)

    def _bytes(self, name: str, at: int, end: int) -> Iterator[bytes]:
        while at < end:
            try:
                part = self._link.get(name, at, min(STEP, end - at))
            except NotThere:
                return
            if not part:
                return
            yield part
            at += len(part)

    def _there(self, name: str, size: int, sha256: str) -> Have | None:
        """Return whether the site's file is there, whole and with this digest."""
        mark = self._link.names(own=True).get(name)
        if mark is None or mark[0] != size:
            return None
        if self._digests.get(name, ((), ""))[0] != mark:
            digest = hashlib.sha256()
            for at in range(0, size, _READ):
                digest.update(self._link.get(name, at, _READ, own=True))
            self._digests[name] = mark, digest.hexdigest()
        return Have(have=size, mark=[*mark]) if self._digests[name][1] == sha256 else None

    def _begin(self, what: tuple[str, int, str]) -> None:
        if self._arriving == what:
            return
        own = self._link.names(own=True)
        used = sum(max(mark[0], LEAST) for name, mark in own.items() if name != what[0])
        if used + what[1] > self._quota or len(own) >= MOST_FILES:
            room, most = f"this site has {used / 1e6:.1f} MB at the server", f"{self._quota / 1e6:.1f} MB"
            raise RequestRefused(507, f"{room}, which takes {most} of it (--quota)")
        self._aside.write_bytes(b"")
        self._arriving, self._have = what, 0

    def _finished(self, what: tuple[str, int, str]) -> Have:
        """Put the file into its folder if it is whole; begin anew if it has another digest."""
        name, size, sha256 = what
        if self._arriving != what or self._have < size:
            return Have(have=self._have if self._arriving == what else 0)
        self._arriving = ("", 0, "")
        if hashlib.sha256(self._aside.read_bytes()).hexdigest() != sha256:
            return Have(have=0)
        try:
            self._link.put(name, self._aside)
        except InputError as error:
            raise RequestRefused(507, f"the server's folder: {error}") from None
        self._aside.unlink()
        mark = self._link.names(own=True)[name]
        self._digests[name] = mark, sha256
        return Have(have=size, mark=[*mark])
