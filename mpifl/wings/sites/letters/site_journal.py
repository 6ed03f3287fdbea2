"""A journal: what a program has noted of letters, on the disk before what follows from it."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field

from mpifl.common import InputError
from mpifl.wings.site import SiteLedger
from mpifl.wings.sites.letters.letter_records import Life, Number
from mpifl.wire import Message, Name


class Superseded(InputError):
    """Another program of the same run was started after this one: this one ends, with exit code 75."""


class JournalLine(Message):
    """An event: a life begins (`life`), or a letter was asked, taken, answered, ...

    Attributes:
        life: The life of the program that notes it.
        event: The event, such as `taken`.
        n: The number of the letter.
        about: More, such as digests by name.
    """

    life: Life
    event: Name
    n: Number = 0
    about: dict[str, str] = Field(default={})


class Journal:
    """The journal of one run at a site, or at the coordinator; each line is flushed to the disk.

    A new journal notes a new life. A program finds out at its next line that a later one was started.

    Attributes:
        life: The life of this program, which its letters name.
    """

    def __init__(self, path: Path) -> None:
        """Read the journal and begin a new life.

        Raises:
            InputError: the file is damaged, or cannot be written.
        """
        self.life = os.urandom(16).hex()
        self._path, self._newest, self._last = path, "", dict[str, JournalLine]()
        self._ledger = SiteLedger(path, JournalLine, self._take)
        self._ledger.record(lambda: JournalLine(life=self.life, event="life"))

    @property
    def lines(self) -> list[JournalLine]:
        """All lines, in their order."""
        return self._ledger.kept

    def note(self, event: str, n: int, **about: str) -> None:
        """Note an event; it is on the disk when this returns.

        Raises:
            Superseded: a later program has begun its life.
            InputError: the file cannot be written.
        """
        self._ledger.record(lambda: self._line(event, n, about))

    def last(self, event: str) -> JournalLine | None:
        """Return the last line of an event, of any life; None if there is none."""
        return self._last.get(event)

    def _line(self, event: str, n: int, about: dict[str, str]) -> JournalLine:
        if self._newest != self.life:
            what = "another program of this run was started after this one, which ends"
            raise Superseded(f"{self._path}: {what}; let one run at a time")
        return JournalLine(life=self.life, event=event, n=n, about=about)

    def _take(self, line: JournalLine) -> None:
        if line.event == "life":
            self._newest = line.life
        self._last[line.event] = line
