"""The file `sent.jsonl`: a line for each letter that leaves a site, written before it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from mpifl.wings.site import SiteLedger
from mpifl.wings.sites.letters import AnswerRecord, RunId, Sealed
from mpifl.wire import Digest, Message

FILE = "sent.jsonl"


class SentLine(Message):
    """A letter that leaves.

    Attributes:
        round, work: Of the question that it answers, if it answers one.
        silos: The numbers of the silos of which something leaves.
        vectors: Elements of each vector.
        numbers: Names of the numbers of single silos.
        bytes: Of all files of the letter.
        sha256: The digest of the letter's file.
    """

    run: RunId
    n: int
    kind: str
    round: int | None = None
    work: str = ""
    silos: list[int] = Field(default=[])
    vectors: dict[str, int] = Field(default={})
    numbers: list[str] = Field(default=[])
    bytes: int = Field(ge=0)
    sha256: Digest


class SentFile:
    """The file of one site, for all its runs. Hand `note` to the mailbox as `leaves`."""

    def __init__(self, site: Path, run: str) -> None:
        """Read the file.

        Raises:
            InputError: it is damaged.
        """
        self._run = run
        self.ledger = SiteLedger(site / FILE, SentLine, lambda line: None)
        self.ledger.catch_up()

    @property
    def lines(self) -> list[SentLine]:
        """All lines that were read so far."""
        return self.ledger.kept

    def note(self, sealed: Sealed, about: Mapping[str, str | int]) -> None:
        """Write the line of a letter, which is on the disk when this returns.

        Args:
            about: `round` and `work` of the question.

        Raises:
            InputError: it cannot be written, and the letter may not leave.
        """
        record = sealed.record
        headers = record.report.headers if isinstance(record, AnswerRecord) else []
        numbers = {name for header in headers for name in getattr(header, "scalars", {})}
        line = SentLine(
            run=self._run,
            n=sealed.name.n,
            kind=sealed.name.kind,
            round=int(about["round"]) if "round" in about else None,
            work=str(about.get("work", "")),
            silos=[header.silo for header in headers],
            vectors=dict(sealed.lengths),
            numbers=sorted(numbers),
            bytes=sealed.bytes,
            sha256=sealed.sha256,
        )
        self.ledger.record(lambda: line)
