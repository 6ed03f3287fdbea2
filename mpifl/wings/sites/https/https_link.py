"""A link over HTTPS that the site opens. It puts letters at the coordinator's server. What it reads comes
from there into a folder of its own, so that what is here is not sent again."""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from mpifl.common import InputError, sha256_of
from mpifl.common.machine import signals
from mpifl.wings.site import Identity
from mpifl.wings.sites.consents import HttpsServer, Invitation, RunHome
from mpifl.wings.sites.https.https_connection import HttpsConnection
from mpifl.wings.sites.https.link_requests import MOST_LISTING, STEP, Have, Listing, authorization, text_of
from mpifl.wings.sites.letters import (
    NAME,
    Blocked,
    FileMark,
    FolderLink,
    LetterLink,
    NotThere,
    most_bytes,
)
from mpifl.wire import Message

_TRIES = 2
"""How many requests in a row may bring nothing before a later look goes on."""
_CUT = (OSError, http.client.HTTPException)
_Kind = TypeVar("_Kind", bound=Message)


class HttpsLink:
    """A site's end of a link to the coordinator's server.

    A signal that asks to end ends a transfer, too. The next life of the program goes on where it was.

    Args:
        server: The server.
        run: The run's id.
        identity: The site, which signs its requests.
        inbox: A private folder for what comes. It must exist.
    """

    threads: int = 1

    def __init__(self, server: HttpsServer, run: str, identity: Identity, inbox: Path) -> None:
        self._url, self._run, self._identity, self._inbox = server.url, run, identity, inbox
        self._server = HttpsConnection(server.url, server.key)
        self._put: dict[str, FileMark] = {}
        """The marks of the files that were put in this life."""
        self._own: Mapping[str, FileMark] = {}
        self._theirs: Mapping[str, FileMark] = {}

    def put(self, name: str, source: Path) -> None:
        """Have a file there, with the content of `source`; see `LetterLink.put`."""
        if name in self._put and self._own.get(name) == self._put[name]:
            return
        try:
            size, digest = source.stat().st_size, sha256_of(source)
        except OSError as error:
            raise InputError(
                f"{source}: cannot be read ({error.strerror or error}); it is not sent"
            ) from None
        what, told, most, idle, question = (
            f"up/{name}?size={size}&sha256={digest}&from=",
            Have(have=0),
            0,
            0,
            True,
        )
        while told.mark is None:
            why: Exception = http.client.HTTPException()
            parts, length = ((), 0) if question else (_parts(source, told.have), size - told.have)
            try:
                request = self._signed("PUT", f"{what}{told.have}")
                told, question = self._read(Have, self._server.ask("PUT", *request, parts, length)), False
            except _CUT as error:
                why, question = error, True  # how much is there by now?
            told = told.model_copy(update={"have": min(told.have, size)})
            idle, most = idle + 1 if told.have <= most else 0, max(most, told.have)
            if told.mark is None:
                self._check(why, idle)
        self._put[name] = tuple(told.mark)
        self._own = {**self._own, name: self._put[name]}

    def stage(self, name: str, content: memoryview) -> None:
        """Take nothing; see `LetterLink.stage`."""

    def unstage(self) -> None:
        """Remove nothing; see `LetterLink.unstage`."""

    def names(self, own: bool = False) -> Mapping[str, FileMark]:
        """Return the names and marks of files; see `LetterLink.names`."""
        for tried in range(_TRIES + 1):
            try:
                told = self._read(Listing, self._server.ask("GET", *self._signed("GET", "names")))
                break
            except _CUT as error:
                self._check(error, tried + 1)
        self._own, self._theirs = _of_letters(told.up), _of_letters(told.down)
        kept = {_kept_as(name, mark) for name, mark in self._theirs.items()}
        for path in self._inbox.iterdir():
            if path.name not in kept:
                path.unlink()
        return self._own if own else self._theirs

    def get(self, name: str, start: int, length: int) -> bytes:
        """Return bytes of a file of the coordinator, once it is all here; see `LetterLink.get`."""
        if (mark := self._theirs.get(name)) is None:
            raise NotThere(f"{name}: is not there")
        if mark[0] > most_bytes(name):
            raise NotThere(f"{name}: has {mark[0]} bytes, which are too many")
        path = self._inbox / _kept_as(name, mark)
        path.touch(0o600)
        if start == 0 and path.stat().st_size == mark[0] and not _is_as_named(name, path):
            path.write_bytes(b"")
        idle = 0
        while (have := path.stat().st_size) < mark[0]:
            why = self._fetched(name, mark, path, have)
            if (there := path.stat().st_size) < mark[0]:
                self._check(why, idle := 0 if there > have else idle + 1)
        with path.open("rb") as file:
            file.seek(start)
            return file.read(length)

    def remove(self, name: str) -> None:
        """Remove an own file, if it is there."""
        self._put.pop(name, None)
        with suppress(Blocked, *_CUT):
            self._server.ask("DELETE", *self._signed("DELETE", f"up/{name}")).read()

    def told(self, name: str) -> str:
        """Return a file of the coordinator as lines for people name it."""
        return f"{self._url}/{name}"

    def _signed(self, method: str, target: str) -> tuple[str, str]:
        """Return the path and the signature of a request."""
        return f"/{self._run}/{target}", authorization(self._identity, self._run, method, target)

    def _read(self, kind: type[_Kind], answer: http.client.HTTPResponse) -> _Kind:
        text = answer.read(MOST_LISTING)
        if answer.length:
            raise http.client.IncompleteRead(text, answer.length)
        try:
            return kind.model_validate_json(text)
        except ValidationError:
            self._server.close()
            what = "answers as no server of mpifl's version here does; letters go on when that is mended"
            raise Blocked(f"{self._url}: {what}") from None

    def _check(self, cut: Exception, idle: int) -> None:
        """Decide whether to try again after a cut.

        Args:
            idle: How many requests in a row have brought nothing.

        Raises:
            Blocked: not now; or a signal asks to end.
        """
        if signals.pending():
            self._server.close()
            raise Blocked(f"{self._url}: a signal came; the same command carries the rest")
        if idle > _TRIES or isinstance(cut, TimeoutError):
            self._server.close()
            short = isinstance(cut, http.client.HTTPException | ConnectionError)
            why = getattr(cut, "strerror", None) or ("it was cut" if short else str(cut))
            raise Blocked(f"{self._url}: cannot be reached ({why}); letters go on when it is")

    def _fetched(self, name: str, mark: FileMark, path: Path, have: int) -> Exception:
        """Fetch the rest of a file, or some of it; return why it is not all.

        Raises:
            NotThere: the server has another file by now.
        """
        left = mark[0] - have
        why: Exception = http.client.HTTPException()
        try:
            target = f"down/{name}?from={have}&mark={text_of(mark)}"
            answer = self._server.ask("GET", *self._signed("GET", target))
            with path.open("ab") as file:
                while left and (part := answer.read(min(STEP, left))) and not signals.pending():
                    file.write(part)
                    left -= len(part)
        except _CUT as error:
            why = error
        if left:
            self._server.close()
        return why


def site_link(told: Invitation, identity: Identity, link: Path, home: RunHome) -> LetterLink:
    """Return a site's end of the link that an invitation names: a server, or the folder of the invitation.

    Raises:
        InputError: the folder for what comes is not private.
    """
    if told.https is None:
        return FolderLink(link, identity.public, "up")
    return HttpsLink(told.https, told.run, identity, home.inbox())


def _parts(source: Path, start: int) -> Iterator[bytes]:
    with source.open("rb") as file:
        file.seek(start)
        while part := file.read(STEP):
            if signals.pending():
                raise ConnectionAbortedError("a signal came")
            yield part


def _of_letters(marks: Mapping[str, list[int]]) -> dict[str, FileMark]:
    return {name: tuple(mark) for name, mark in marks.items() if NAME.fullmatch(name) and mark}


def _kept_as(name: str, mark: FileMark) -> str:
    """Return under which name a file is kept: another content has another one."""
    return f"{name}.{hashlib.sha256(text_of(mark).encode()).hexdigest()[:16]}"


def _is_as_named(name: str, path: Path) -> bool:
    """Return whether what has come whole need not come again: a piece of the digest that its name has."""
    return name.endswith(".part") and hashlib.sha256(path.read_bytes()).hexdigest()[:16] == name[-21:-5]
