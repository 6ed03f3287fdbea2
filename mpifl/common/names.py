"""The names of silos in texts for people: a silo's own name if it has one, else its number."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

LONGEST = 40
"""The most characters of a name that are shown."""
AROUND = len("'' (1000000)")
"""The most characters that are added to a name."""
SHOWN = re.compile(rf"('?).{{1,{LONGEST}}}\1( \(\d+\))?|\d+ \(.{{1,{LONGEST}}}\)")
"""A name as it is shown, which stays so where it is shown anew."""


class Names:
    """The printable names of a federation's silos: `cleveland`, or `3` if a name only repeats the number.

    A name may be any text. Characters that move a terminal's cursor or reverse its line are removed. A name
    that looks like a number, or that two silos have, is shown with the silo's number.

    Attributes:
        many: How many silos have a name.
    """

    def __init__(self, names: Sequence[object] = ()) -> None:
        self._names = [printable(str(name)) for name in names]
        self._times, self.many = Counter(self._names), len(self._names)

    def __getitem__(self, silo: int | str) -> str:
        if not str(silo).isdecimal():  # a run folder may come from another program
            shown = printable(str(silo), LONGEST + AROUND)
            return shown if SHOWN.fullmatch(shown) else printable(shown)
        number = int(silo)
        name = self._names[number] if 0 <= number < len(self._names) else ""
        if not _tells(name, number):
            return str(number)
        if more := re.fullmatch(rf"silo[ _-]?0*{number}, (.+)", name):
            return f"{number} ({more[1]})"
        shown = name if re.fullmatch(r"[^\W\d][\w.+-]*", name) else f"'{name}'"
        return f"{shown} ({number})" if self._times[name] > 1 or name.isdigit() else shown

    def listed(self, silos: Sequence[int | str], most: int | None = None) -> str:
        """Return `silo cleveland` or `silos cleveland, 3`; of more than `most` their number, and some."""
        who = ", ".join(self[silo] for silo in silos[:most])
        if most is not None and len(silos) > most:
            return f"{len(silos):,} silos (among them {who})"
        return f"silo{'s' * (len(silos) > 1)} {who}"

    @property
    def told(self) -> list[str]:
        """The names if any of them says more than its silo's number, else []."""
        return self._names if any(_tells(name, number) for number, name in enumerate(self._names)) else []


def count_of(number: int, what: str) -> str:
    """Return `1 silo` or `2,000 silos`."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def printable(text: str, longest: int = LONGEST) -> str:
    """Return a text as one line, without control and format characters, cut to `longest` characters."""
    kept = "".join(c if c.isspace() or unicodedata.category(c)[0] != "C" else "" for c in text)
    line = " ".join(kept.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _tells(name: str, number: int) -> bool:
    return bool(name) and not re.fullmatch(rf"(silo[ _-]?)?0*{number}(\.h5)?", name)
