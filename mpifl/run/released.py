"""What was released under masks: a server that goes on at an earlier round asks for the same again."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from mpifl.common import InputError

FILE = "released.jsonl"


class ReleasedFile:
    """The silos that each sum of a run was released over, a line each in the run folder.

    Attributes:
        id: By which sites tell this run from others of the same job: the first line.
    """

    def __init__(self, run: Path, id: str = "") -> None:
        """Read the file, if there is one.

        Args:
            run: The run folder.
            id: Of a run that has no file yet; a new one by default.

        Raises:
            InputError: the file is damaged.
        """
        self._path = run / FILE
        found, self._known = _read(self._path) if self._path.exists() else ("", {})
        self.id, self._begun = found or id or os.urandom(16).hex(), bool(found)

    def note(self, round: int, work: str, silos: Sequence[int]) -> None:
        """Note what is about to be released; it is on the disk when this returns."""
        if self.of(round, work) != list(silos):
            line = json.dumps({"round": round, "work": work, "silos": list(silos)}) + "\n"
            line = line if self._begun else json.dumps({"run": self.id}) + "\n" + line
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            try:
                os.write(file, line.encode())
                os.fsync(file)
            finally:
                os.close(file)
            self._known[round, work], self._begun = list(silos), True

    def of(self, round: int, work: str) -> list[int] | None:
        """Return the silos that a sum was released over, None if it was not."""
        return self._known.get((round, work))


def _read(path: Path) -> tuple[str, dict[tuple[int, str], list[int]]]:
    """Return the run that a file is of, and what it tells; a last line that was cut was never released."""
    lines, id, found = path.read_text(errors="replace").split("\n")[:-1], "", {}
    for nth, line in enumerate(lines, 1):
        try:
            one = json.loads(line)
            if nth == 1:
                id = str(one["run"])
            else:
                found[int(one["round"]), str(one["work"])] = [int(silo) for silo in one["silos"]]
        except (ValueError, TypeError, KeyError):
            what = f"line {nth} is none of releases; put back a copy that is whole, or begin a new run"
            raise InputError(f"{path}: {what}") from None
    return id, found
