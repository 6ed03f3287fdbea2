"""The names of letters and pieces, and the three verbs of a link."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from mpifl.common import InputError
from mpifl.wings.sites.letters.letter_records import MOST_OF

_KINDS = "|".join(MOST_OF)
NAME = re.compile(rf"([0-9]{{6}})-({_KINDS})(?:\.msg|-([0-9a-f]{{16}})\.part)", re.ASCII)
"""A letter `000017-ask.msg`, or a piece of it, `000017-ask-3fa9c27d10b64e55.part`, by its sha256."""

FileMark: TypeAlias = tuple[int, ...]
"""Size, inode and times of a file. Another mark may mean another content."""


class NotThere(Exception):
    """There is no such file, or not all of it, or not by whom and of what it should be."""


class Blocked(InputError):
    """The link is full or read-only, or something else lies in a letter's place; letters go on when that is
    mended."""


class LetterFault(InputError):
    """A letter is signed by its sender, and what is inside is wrong: the sender's fault."""


class LetterLink(Protocol):
    """One end of a way between the coordinator and one site; nothing above it knows which kind it is.

    Attributes:
        threads: How many threads may put or get files at a time.
    """

    threads: int

    def put(self, name: str, source: Path) -> None:
        """Have a file there, with the content of `source`. What is there already is not written again.

        Raises:
            Blocked: there is no room, nobody may write there, or something else lies where the file belongs.
            InputError: it cannot be written.
        """

    def stage(self, name: str, content: memoryview) -> None:
        """Take a piece that `put` will be called for, while it is in memory; a link need not take it. Nobody
        can open it before its letter is put. Several threads may call this at a time."""

    def unstage(self) -> None:
        """Remove what was staged and not put."""

    def names(self, own: bool = False) -> Mapping[str, FileMark]:
        """Return the names and marks of the other side's files, or of the own ones; a mark begins with the
        size.

        Raises:
            Blocked: the link does not answer; letters go on when it does.
        """

    def get(self, name: str, start: int, length: int) -> bytes:
        """Return at most `length` bytes of a file of the other side, from `start` on.

        Raises:
            NotThere: there is no such file.
            Blocked: the link does not answer.
        """

    def remove(self, name: str) -> None:
        """Remove an own file, if it is there."""

    def told(self, name: str) -> str:
        """Return a file of the other side as lines for people name it."""


@dataclass(frozen=True)
class LetterName:
    """The number and kind of a letter."""

    n: int
    kind: str

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.n:06d}-{self.kind}.msg"

    def part(self, sha256: str) -> str:
        """Return the name of a piece."""
        return f"{self.n:06d}-{self.kind}-{sha256[:16]}.part"


def letter_of(name: str) -> LetterName | None:
    """Return the letter that a file belongs to, None for other files."""
    found = NAME.fullmatch(name)
    return LetterName(int(found[1]), found[2]) if found else None
