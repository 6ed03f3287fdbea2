"""The answers to questions that sites have missed: what the coordinator notes of them, and keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpifl.wings.sites.answers import KeptAnswers, SiteAnswer
from mpifl.wings.sites.consents import RunHome
from mpifl.wings.sites.letters import LAST_NUMBER, Journal, JournalLine
from mpifl.wire import Request

FOLDER = "late"
"""The folder of late answers in the coordinator's private folder of a run."""
_MISSED = "missed"


@dataclass(frozen=True)
class LateAnswer:
    """An answer that came after its round was decided.

    Attributes:
        n: The number of its question.
        round: The round of its question.
        silos: The site's silos that were asked.
        summands: How many silos were asked at all sites, which sets the grid of the sums.
        asked: The question's digest.
        answer: The answer; None while it is not here.
    """

    n: int
    round: int
    silos: Sequence[int]
    summands: int
    asked: str
    answer: SiteAnswer | None = None


class LateAnswers:
    """The questions that sites have missed, by the coordinator's journal, and the answers that came by now.

    An answer is on the disk before its site is asked again: from then on the site may remove its letter. It
    stays there as long as the coordinator may go on from a checkpoint before the round in which it counts.

    Args:
        journal: The coordinator's journal.
        home: The coordinator's private folder of the run.
        most: How many rounds late an answer may come.
    """

    def __init__(self, journal: Journal, home: RunHome, most: int) -> None:
        self._journal, self._most = journal, most
        self._kept = KeptAnswers(
            home.folder / FOLDER, without="the late sum does not count", again="train with --resume"
        )
        self._missed: dict[tuple[str, int], LateAnswer] = {}
        self._gone: dict[tuple[str, int], str] = {}
        """Why answers do not count, or will not come."""
        for line in journal.lines:
            if line.event == _MISSED:
                self._add(line)

    def miss(self, site: str, n: int, request: Request, silos: Iterable[int], asked: str) -> None:
        """Note that a site has missed a question.

        Args:
            silos: The site's silos that were asked.
            asked: The question's digest.
        """
        of = {"round": str(request.round), "silos": " ".join(map(str, silos)), "of": str(len(request.cohort))}
        self._journal.note(_MISSED, n, site=site, asked=asked, **of)
        line = self._journal.last(_MISSED)
        assert line is not None
        self._add(line)

    def _add(self, line: JournalLine) -> None:
        about = line.about
        silos = [int(silo) for silo in about["silos"].split()]
        missed = LateAnswer(line.n, int(about["round"]), silos, int(about["of"]), about["asked"])
        self._missed[about["site"], line.n] = missed

    def round_of(self, site: str, n: int) -> int | None:
        """Return the round of a question that a site has missed; None if its answer is no late sum."""
        missed = self._missed.get((site, n))
        return None if missed is None else missed.round

    def take(self, site: str, n: int, letter: Any) -> str:
        """Keep the letter by which a site is back; return what becomes of it.

        Args:
            n: The number of the question that the site has missed.

        Raises:
            InputError: the answer cannot be kept.
        """
        if (missed := self._missed.get((site, n))) is None:
            return f"its answer to letter {n} came too late to count"
        why = _why_not(n, letter, missed)
        if why:
            self._gone[site, n] = why
            return f"its sum of round {missed.round + 1} does not count: {why}"
        told = letter.record
        sums = {
            (one.window, one.name): vector
            for one, vector in zip(told.sums, letter.vectors.values(), strict=True)
        }
        self._kept.keep(missed.asked, SiteAnswer(n, told.report.headers, sums))
        return f"its sum of round {missed.round + 1} has come"

    def of(self, site: str, n: int) -> LateAnswer | str | None:
        """Return the answer to a question that a site has missed, or why none counts; None if it is not here.

        Raises:
            InputError: its file is damaged.
        """
        if (site, n) in self._gone:
            return self._gone[site, n]
        if (missed := self._missed.get((site, n))) is None:
            return "sites.jsonl has no such question; it was put back from a copy"
        if (answer := self._kept.of(missed.asked)) is None:
            return None
        return dataclasses.replace(missed, answer=answer)

    def here(self, waiting: Mapping[str, int]) -> dict[str, LateAnswer | str]:
        """Return the answers that are here, or why they do not count, by site.

        Args:
            waiting: For each site the number of the question that it has missed.
        """
        found = {name: self.of(name, n) for name, n in waiting.items()}
        return {name: one for name, one in found.items() if one is not None}

    def forget(self, oldest: float) -> None:
        """Remove the answers that no round from `oldest` on can count."""
        needed = [n for (_, n), one in self._missed.items() if one.round + self._most >= oldest]
        self._kept.forget(min(needed, default=LAST_NUMBER + 1))


def _why_not(n: int, letter: Any, missed: LateAnswer) -> str:
    """Return why a letter is no sum that may count, "" if it is one."""
    if letter.record.kind != "answer" or letter.n != n or letter.record.asked != missed.asked:
        return f"its site answers another letter than {n}"
    headers = letter.record.report.headers
    if any(one.fault is not None for one in headers):
        return "a silo of it failed"
    if len(letter.record.sums) != len(letter.vectors) or any(
        one.window is None for one in letter.record.sums
    ):
        return "its site sends other vectors than it names"
    return ""
