"""How a CSV table writes numbers: its decimal mark, and what parts thousands."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

BLANKS = " \u00a0\u202f"
"""Blanks that part thousands: a common one, and two that break no line."""


@dataclass(frozen=True)
class Notation:
    """How numbers are written.

    Attributes:
        decimal: What stands before the fraction.
        thousands: What parts groups of three digits before it; nothing if empty, a blank of any kind if " ".
    """

    decimal: str = "."
    thousands: str = ""

    def plain(self, text: str) -> str:
        """Return a number with a decimal point and without groups; "" of what is none."""
        if not _pattern(self.decimal, self.thousands).fullmatch(text):
            return ""
        for mark in _marks(self.thousands):
            text = text.replace(mark, "")
        return text.replace(self.decimal, ".")

    def groups(self, text: str) -> int:
        """Return how sure a number's groups of thousands are: 0 without any, 1 of a mark that may be of a
        fraction, more where it cannot."""
        marks = sum(map(text.count, _marks(self.thousands)))
        return marks and marks + (self.decimal in text) + (self.thousands not in ".,")

    def written(self) -> list[str]:
        """Return the lines of a spec that say so."""
        decimal = [f'decimal = "{self.decimal}"'] if self.decimal != "." else []
        return [*decimal, *([f'thousands = "{self.thousands}"'] if self.thousands else [])]


PLAIN = Notation()
"""A decimal point and no groups, as Python and TOML write numbers."""
OTHERS = tuple(Notation(*marks) for marks in (",", ".,", ",.", ". ", ", ", ".'", ",'"))
"""The others that people use, the simple ones first."""


def _marks(thousands: str) -> str:
    return BLANKS if thousands == " " else thousands


@functools.lru_cache(maxsize=64)
def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    groups = rf"[1-9][0-9]{{0,2}}(?:[{re.escape(_marks(thousands))}][0-9]{{3}})+|" if thousands else ""
    whole = rf"(?:{groups}[0-9]+)(?:{point}[0-9]*)?"
    return re.compile(rf"[+-]?(?:{whole}|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?")
