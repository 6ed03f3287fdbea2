"""What silos are called where people read of them: by name if they have one, else by number."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

LONGEST = 40
"""Characters of a name that are shown."""


class Names:
    """The silos of a federation by what a person may read: `cleveland`, or `3` where a name only says the
    number.

    A name is anybody's text. What would move a terminal's cursor or turn its line around is taken out. A name
    that could be taken for a number or another silo's has the number beside it.
    """

    def __init__(self, names: Sequence[object] = ()) -> None:
        self._names = [printable(str(name)) for name in names]
        self._times = Counter(self._names)

    def __getitem__(self, silo: int | str) -> str:
        if not str(silo).isdecimal():  # in a run folder that another program has written
            return printable(str(silo))
        number = int(silo)
        name = self._names[number] if 0 <= number < len(self._names) else ""
        if not _tells(name, number):
            return str(number)
        shown = name if re.fullmatch(r"[^\W\d][\w.+-]*", name) else f"'{name}'"
        return f"{shown} ({number})" if self._times[name] > 1 or name.isdigit() else shown

    def listed(self, silos: Sequence[int | str]) -> str:
        """Return `silo cleveland` or `silos cleveland, 3`."""
        return f"silo{'s' * (len(silos) > 1)} {', '.join(self[silo] for silo in silos)}"

    @property
    def told(self) -> list[str]:
        """The names, if any says more than its silo's number."""
        return self._names if any(_tells(name, number) for number, name in enumerate(self._names)) else []


def printable(text: str) -> str:
    """Return a text in one line, without control and format characters, and cut where it is long."""
    kept = "".join(c if c.isspace() or unicodedata.category(c)[0] != "C" else "" for c in text)
    line = " ".join(kept.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _tells(name: str, number: int) -> bool:
    return bool(name) and not re.fullmatch(rf"(silo[ _-]?)?0*{number}(\.h5)?", name)
