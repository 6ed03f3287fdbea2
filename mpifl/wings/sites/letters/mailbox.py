"""A mailbox: letters to and from one other party, over a link."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mpifl.common import InputError, remove_left_behind
from mpifl.wings.site import fsync_folder
from mpifl.wings.sites.letters.letter_format import at_once
from mpifl.wings.sites.letters.letter_names import (
    NAME,
    Blocked,
    FileMark,
    LetterLink,
    LetterName,
    NotThere,
    letter_of,
)
from mpifl.wings.sites.letters.letter_records import LetterRecord
from mpifl.wings.sites.letters.sealed_letter import Letter, Post, Sealed

PATIENCE = 600.0
"""Seconds after which a line says what of a letter is not there."""
_LOOKS, _MOST_LINES = 16, 1000
"""A wrong file is read again when its mark changes, and once in so many looks. So many lines are told."""
Leaves = Callable[[Sealed, Mapping[str, str | int]], None]
"""Notes a letter before it leaves: the letter, and what `dispatch` was told about it."""


@dataclass
class _Wrong:
    """A letter that was not whole: the marks of its files, whether its header is valid, looks since then."""

    marks: tuple[FileMark, ...]
    begun: bool
    looks: int = 0

    def is_as_before(self, marks: tuple[FileMark, ...]) -> bool:
        """Return whether to leave the files alone: they are the same, and were read not long ago."""
        self.looks += 1
        return self.marks == marks and self.looks % _LOOKS != 0


class Mailbox:
    """The letters between this party and one other: seal, put, find the newest, put again what vanished.

    A site has one mailbox, to the coordinator. The coordinator has one for each site. Nothing here waits:
    call `newest` again and again, some seconds apart.

    A letter is known by its number n and its kind. The kind is the class of its record (`letter_records`).
    Vectors are flat tensors of dtypes in `wire.DTYPES`. Letters lie in the outbox, a private folder, until
    `forget` removes them. So the same bytes can be put again, also after a kill.

    Example:
        post = Post(run, identity, run_key, other, other_key, largest)
        mailbox = Mailbox(post, FolderLink(link, site_key, "up"), outbox)
        mailbox.dispatch(0, HelloRecord(life=life, ...))
        letter = mailbox.newest("ask", "sum", "end", after=n)   # None: nothing new that is whole
        sealed = mailbox.seal(letter.n, AnswerRecord(life=life, ...), sums)
        ...                                                     # the journal has it on the disk
        mailbox.put(sealed)
        mailbox.put_again(n, "answer")                          # False: the outbox has no such letter

    Args:
        post: Closes and opens; `post.other_key` is set by the first hello.
        link: Carries.
        outbox: A private folder of this mailbox alone, such as `runs/RUN/outbox`. It must exist.
        leaves: Called before each letter leaves for the first time; an error keeps it from leaving. No byte
            is on the link before. Without it, pieces are written there while they are in memory.
        say: Told lines for people: what is incomplete since 10 minutes, a second hello with another key.
    """

    def __init__(
        self,
        post: Post,
        link: LetterLink,
        outbox: Path,
        leaves: Leaves | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.post = post
        self._link, self._outbox, self._leaves, self._say = link, outbox, leaves, say
        self._put: dict[LetterName, tuple[str, ...]] = {}
        """The files of letters that were put in this life, the letter's own last."""
        self._wrong: dict[LetterName, _Wrong] = {}
        self._since: dict[LetterName, float] = {}
        self._said: set[str] = set()
        remove_left_behind(outbox, NAME.pattern)

    def seal(self, n: int, record: LetterRecord, vectors: Mapping[str, Tensor] | None = None) -> Sealed:
        """Close a letter into the outbox, in the place of an earlier one with this number and kind.

        Raises:
            InputError: number, record or vectors are beyond their bounds, or the outbox cannot be written.
        """
        name, stage = LetterName(n, record.kind), self._link.stage if self._leaves is None else None
        self._link.unstage()
        try:
            for path in sorted(self._files(name), key=lambda path: path.name != name.file):
                path.unlink()  # the letter first: without it the pieces are none
            sealed = self.post.close(n, record, vectors or {}, self._outbox, stage)
            fsync_folder(self._outbox)
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"{self._outbox}: cannot be written ({why}); nothing is sent") from None
        return sealed

    def put(self, sealed: Sealed, about: Mapping[str, str | int] | None = None) -> None:
        """Note that a letter leaves, and put it on the link.

        Args:
            about: What else is noted, such as the round and the work.

        Raises:
            InputError: the link cannot be written, or the letter was not noted.
        """
        if self._leaves is not None:
            self._leaves(sealed, about or {})
        self._put_files(sealed.name, sealed.files)

    def dispatch(self, n: int, record: LetterRecord, vectors: Mapping[str, Tensor] | None = None) -> Sealed:
        """Seal a letter and put it on the link; see `seal` and `put`."""
        sealed = self.seal(n, record, vectors)
        self.put(sealed)
        return sealed

    def put_again(self, n: int, kind: str) -> bool:
        """Put a letter of the outbox on the link, and return whether the outbox has it.

        Raises:
            InputError: the link cannot be written.
        """
        name = LetterName(n, kind)
        files = sorted((path.name for path in self._files(name)), key=lambda file: file == name.file)
        if name.file not in files:
            return False
        self._put_files(name, tuple(files))
        return True

    def forget(self, before: int) -> None:
        """Remove own letters with smaller numbers, which the other party needs no more."""
        self._put = {name: files for name, files in self._put.items() if name.n >= before}
        self._wrong = {name: wrong for name, wrong in self._wrong.items() if name.n >= before}
        for path in self._outbox.iterdir():
            if (name := letter_of(path.name)) and name.n < before:
                path.unlink()
        for file in self._names(own=True):
            if (name := letter_of(file)) and name.n < before:
                self._link.remove(file)

    def newest(self, *kinds: str, after: int = -1) -> Letter | None:
        """Return the newest letter of some kinds with a larger number than `after`, if it is whole.

        An older letter is not returned when the header of a newer one is there. Letters that vanished from
        the link before they were forgotten are put there again.

        Raises:
            LetterFault: the other party has signed a letter whose inside is wrong. Take it as its fault, and
                go on with larger numbers.
        """
        self._tend()
        there = self._names()
        found = {name for name in map(letter_of, there) if name and name.kind in kinds and name.n > after}
        for name in sorted(found, key=lambda name: (name.n, name.kind), reverse=True):
            wrong, marks = self._wrong.get(name), _marks(name, there)
            if wrong is None or not wrong.is_as_before(marks):
                try:
                    letter = self._opened(name, there)
                except Blocked as error:  # the link does not answer: the next look goes on
                    self._tell(str(error))
                    return None
                if letter:
                    return letter
                wrong = self._wrong[name]
            if wrong.begun:
                return None
        return None

    def _opened(self, name: LetterName, there: Mapping[str, FileMark]) -> Letter | None:
        """Return a letter, or None and note why it is not there."""
        begun = False
        try:
            opening = self.post.look(name, self._link.get)
            if opening.header.key != (self.post.other_key or opening.header.key) and opening.header.key:
                self._tell(f"{self._link.told(name.file)}: is a hello with another run key; it is ignored")
                raise NotThere("a site that has lost its folder takes no part in this run any more")
            begun = True
            sizes = {file: there[file][0] for file in there}
            letter = self.post.open(name, opening, self._link.get, sizes, self._link.threads)
        except NotThere as missing:
            since = self._since.setdefault(name, time.monotonic())
            if time.monotonic() - since > PATIENCE:
                self._tell(f"{self._link.told(name.file)}: since {PATIENCE / 60:.0f} min: {missing}")
            self._wrong[name] = _Wrong(_marks(name, there), begun)
            return None
        self.post.other_key = self.post.other_key or letter.key
        self._since.pop(name, None)
        self._wrong.pop(name, None)
        return letter

    def _tend(self) -> None:
        """Put letters again that vanished from the link; what cannot be written now is told."""
        try:
            for name, files in [*self._put.items()]:
                self._put_files(name, files)
        except InputError as error:
            self._tell(str(error))

    def _names(self, own: bool = False) -> Mapping[str, FileMark]:
        """Return what is on the link; nothing, and a line, where it does not answer."""
        try:
            return self._link.names(own)
        except Blocked as error:
            self._tell(str(error))
            return {}

    def _files(self, name: LetterName) -> list[Path]:
        return [path for path in self._outbox.iterdir() if letter_of(path.name) == name]

    def _put_files(self, name: LetterName, files: tuple[str, ...]) -> None:
        """Put a letter's files; one that someone blocks is tried again at each look."""
        try:
            *parts, letter = files  # which is whole only with its pieces
            at_once(lambda file: self._link.put(file, self._outbox / file), parts, threads=self._link.threads)
            self._link.put(letter, self._outbox / letter)
        except Blocked as error:
            self._put[name] = files
            return self._tell(str(error))
        if self._put.get(name) != files:
            for file in self._names(own=True):
                if letter_of(file) == name and file not in files:
                    self._link.remove(file)
        self._put[name] = files

    def _tell(self, line: str) -> None:
        if line not in self._said and len(self._said) < _MOST_LINES:
            self._said.add(line)
            self._say(line)


def _marks(name: LetterName, there: Mapping[str, FileMark]) -> tuple[FileMark, ...]:
    return tuple(mark for file, mark in sorted(there.items()) if letter_of(file) == name)
