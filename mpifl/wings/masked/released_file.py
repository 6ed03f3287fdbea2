"""The server's file of released masked sums: a resumed run asks for the same sums again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from mpifl.common import InputError
from mpifl.wings.site import SiteLedger

FILE = "released.jsonl"


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    run: str
    round: int
    work: str
    silos: list[int]


class ReleasedFile:
    """The silos of each released sum of a run, one line for each sum, in the run folder.

    Attributes:
        id: The run's id, which each line has. Sites use it to tell runs of one job apart.
    """

    def __init__(self, run: Path, id: str = "") -> None:
        """Read the file, if there is one.

        Args:
            run: The run folder.
            id: The run's id, if it has one already; by default the id in the file, or a new one.

        Raises:
            InputError: the file is damaged, or belongs to another run.
        """
        self._known: dict[tuple[int, str], list[int]] = {}
        self.id = id
        self._ledger = SiteLedger(run / FILE, _Line, self._take)
        self._ledger.catch_up()
        self.id = self.id or os.urandom(16).hex()

    def note(self, round: int, work: str, silos: Sequence[int]) -> None:
        """Note the silos of a sum before its release; the note is on the disk when this returns.

        Raises:
            InputError: it cannot be written, and nothing may be released.
        """
        line = _Line(run=self.id, round=round, work=work, silos=list(silos))
        self._ledger.record(lambda: None if self.of(round, work) == line.silos else line)

    def of(self, round: int, work: str) -> list[int] | None:
        """Return the silos of a released sum, None if it was not released."""
        return self._known.get((round, work))

    def _take(self, line: _Line) -> None:
        if line.run != (self.id or line.run):
            raise InputError(f"{self._ledger.path}: is that of another run; put back this run's own")
        self.id = line.run
        self._known[line.round, line.work] = line.silos
