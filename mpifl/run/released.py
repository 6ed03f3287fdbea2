"""What was released under masks: a server that goes on at an earlier round asks for the same again."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from mpifl.common import InputError

FILE = "released.jsonl"


class ReleasedFile:
    """The silos that each sum of a run was released over, a line each in the run folder."""

    def __init__(self, run: Path) -> None:
        self._path = run / FILE
        self._known: dict[tuple[int, str], list[int]] | None = None

    def note(self, round: int, work: str, silos: Sequence[int]) -> None:
        """Note what is about to be released; it is on the disk when this returns."""
        if self.of(round, work) != list(silos):
            line = json.dumps({"round": round, "work": work, "silos": list(silos)}) + "\n"
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            try:
                os.write(file, line.encode())
                os.fsync(file)
            finally:
                os.close(file)
            self._lines()[round, work] = list(silos)

    def of(self, round: int, work: str) -> list[int] | None:
        """Return the silos that a sum was released over, None if it was not.

        Raises:
            InputError: the file is damaged.
        """
        return self._lines().get((round, work))

    def _lines(self) -> dict[tuple[int, str], list[int]]:
        if self._known is None:
            self._known = _read(self._path) if self._path.exists() else {}
        return self._known


def _read(path: Path) -> dict[tuple[int, str], list[int]]:
    """Return what a file tells; a last line that was cut short was never released."""
    found = {}
    lines = path.read_text(errors="replace").split("\n")[:-1]
    for nth, line in enumerate(lines, 1):
        try:
            one = json.loads(line)
            found[int(one["round"]), str(one["work"])] = [int(silo) for silo in one["silos"]]
        except (ValueError, TypeError, KeyError):
            what = f"line {nth} is none of releases; put back a copy that is whole, or begin a new run"
            raise InputError(f"{path}: {what}") from None
    return found
