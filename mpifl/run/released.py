"""What was released under masks: a server that goes on at an earlier round asks for the same again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from mpifl.privacy import Ledger

FILE = "released.jsonl"


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    round: int
    work: str
    silos: list[int]


class ReleasedFile:
    """The silos that each sum of a run was released over, a line each in the run folder."""

    def __init__(self, run: Path) -> None:
        self._known: dict[tuple[int, str], list[int]] = {}
        self._ledger = Ledger(run / FILE, _Line, self._take)

    def note(self, round: int, work: str, silos: Sequence[int]) -> None:
        """Note what is about to be released; it is on the disk when this returns.

        Raises:
            InputError: it cannot be written, and nothing may be released.
        """
        line = _Line(round=round, work=work, silos=list(silos))
        self._ledger.record(lambda: None if self._known.get((round, work)) == line.silos else line)

    def of(self, round: int, work: str) -> list[int] | None:
        """Return the silos that a sum was released over, None if it was not.

        Raises:
            InputError: the file is damaged.
        """
        self._ledger.catch_up()
        return self._known.get((round, work))

    def _take(self, line: _Line) -> None:
        self._known[line.round, line.work] = line.silos
