"""What was released under masks: a server that goes on at an earlier round asks for the same again."""

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
    """The silos that each sum of a run was released over, a line each in the run folder.

    Attributes:
        id: By which sites tell this run from others of the same job; each line has it.
    """

    def __init__(self, run: Path, id: str = "") -> None:
        """Read the file, if there is one.

        Args:
            run: The run folder.
            id: The run's, if it has one already; by default that of the file, or a new one.

        Raises:
            InputError: the file is damaged, or another run's.
        """
        self._known: dict[tuple[int, str], list[int]] = {}
        self.id = id
        self._ledger = SiteLedger(run / FILE, _Line, self._take)
        self._ledger.catch_up()
        self.id = self.id or os.urandom(16).hex()

    def note(self, round: int, work: str, silos: Sequence[int]) -> None:
        """Note what is about to be released; it is on the disk when this returns.

        Raises:
            InputError: it cannot be written, and nothing may be released.
        """
        line = _Line(run=self.id, round=round, work=work, silos=list(silos))
        self._ledger.record(lambda: None if self.of(round, work) == line.silos else line)

    def of(self, round: int, work: str) -> list[int] | None:
        """Return the silos that a sum was released over, None if it was not."""
        return self._known.get((round, work))

    def _take(self, line: _Line) -> None:
        if line.run != (self.id or line.run):
            raise InputError(f"{self._ledger.path}: is that of another run; put back this run's own")
        self.id = line.run
        self._known[line.round, line.work] = line.silos
