"""Find the speaking roles in the text of plays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

Roles = dict[tuple[str, str], list[str]]
"""The lines that each (play, role) speaks, in their order."""

NAME = r"(?:\d\. )?[A-Z][A-Z’' ,-]+"
SPEECH = re.compile(rf"(?P<indent> {{0,6}})(?P<role>{NAME})\.+(?:\s+(?P<line>\S.*))?")
"""How the Gutenberg edition begins a speech: `ROLE.`, then the first line or the end of the line."""
NO_ROLE = re.compile(r"ACT\b|SCENE\b|EPILOGUE\b|DRAMATIS|[IVXLC]+$|THE END$")
DIRECTION = re.compile(
    r"[\[(_]|(?:(?:Re-)?[Ee]nter|Exit|Exeunt|Flourish|Alarum|Sennet|Manet|Curtain)\b|ACT[ _]|SCENE\b"
)
BRACKETS = re.compile(r" *\[[^]]*(\]|$)")
DEEP = 12
"""Spaces before what is set to the middle or the right of a page: stage directions."""
HEADING = re.compile(r"^(?P<role>[A-Z][^:\n]{0,40}):$")
LAST = ("*** END OF TH", "***END OF TH", "End of Th")
"""How Project Gutenberg closes a text."""
FEWEST = 5
"""A work with fewer roles is a poem, signed by its author."""


def find_roles(text: str) -> Roles:
    """Return what each role speaks: by `ROLE:` headings if there are any, else as in Project Gutenberg's
    Shakespeare.

    Empty if there are no roles.
    """
    lines = text.splitlines()
    headed = _collect(_by_headings(lines))
    if sum(map(len, headed.values())) > len(lines) // 4:  # the rest are headings and empty lines
        return headed
    roles = _collect(_by_plays(lines))
    cast = Counter(play for play, _ in roles)
    return {key: lines for key, lines in roles.items() if cast[key[0]] >= FEWEST}


def _collect(spoken: Iterable[tuple[str, str, str]]) -> Roles:
    roles: Roles = {}
    for play, role, line in spoken:
        if line:
            roles.setdefault((play, role), []).append(line)
    return roles


def _by_headings(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (play, role, line) where a line `ROLE:` begins a speech and an empty line ends it."""
    role = None
    for line in lines:
        if not line.strip():
            role = None
        elif role is None:
            heading = HEADING.match(line)
            role = heading["role"] if heading else ""
        elif role:
            yield "", role, line.strip()


def _by_plays(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (play, role, line) of a collection whose contents list its works."""
    titles, begin = _contents(lines)
    play = role = None
    for line in lines[begin:]:
        stripped = line.strip()
        if stripped.startswith(LAST):
            return
        if stripped.isupper() and (title := _letters(stripped)) in titles:
            play, role = titles[title], None
        elif (speech := SPEECH.fullmatch(line.rstrip())) and not NO_ROLE.match(speech["role"]):
            role = " ".join(speech["role"].split())
            if play and speech["line"]:
                yield play, role, _spoken(speech["line"])
        elif stripped.startswith(("ACT", "SCENE", "THE END", "Scene ")):
            role = None
        elif play and role and stripped and not (line.startswith(" " * DEEP) or DIRECTION.match(stripped)):
            yield play, role, _spoken(stripped)


def _contents(lines: list[str]) -> tuple[dict[str, str], int]:
    """Return the titles that the contents list, by their letters, and the line after them."""
    begin = next((at for at, line in enumerate(lines) if line.strip() == "Contents"), len(lines))
    after = next((at for at in range(begin + 1, len(lines)) if lines[at][:1].strip()), len(lines))
    listed = [line.strip() for line in lines[begin + 1 : after] if line.strip()]
    return {_letters(title): title for title in listed}, after


def _letters(title: str) -> str:
    return "".join(letter for letter in title.upper() if letter.isalpha() or letter == " ").strip()


def _spoken(line: str) -> str:
    """Take out stage directions: what is in brackets, and what is set at the right end of a line."""
    return BRACKETS.sub("", re.split(" {3,}", line)[0]).strip()
