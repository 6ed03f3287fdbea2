"""Over any schedule of harm and deaths, letters arrive as they were sent, in order, and in the end all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from links.memory_link import MemoryLink, Shared
from links.two_ends import COORDINATOR, LIFE, SITE, ask, post
from links.worst_copier import FolderFiles, WorstCopier

from mpifl.wings.sites.letters import AnswerRecord, EndRecord, FolderLink, Journal, Mailbox, letter_format
from mpifl.wire import Report

BEATS = 3
SCHEDULES = 3000 if os.environ.get("MPIFL_SLOW") else 24


class Party:
    """A party whose program may die at any time: a new one has what is on the disk."""

    def __init__(self, folder: Path, link, own, other) -> None:
        self.outbox, self._journal = folder / f"outbox-{own.name}", folder / f"{own.name}.jsonl"
        self.outbox.mkdir()
        self._link, self._own, self._other = link, own, other
        self.got: list[int] = []
        self.live()

    def live(self) -> None:
        """Begin a life: as at the first start, or after a death."""
        self.journal = Journal(self._journal)
        self.mailbox = Mailbox(post(self._own, self._other), self._link(), self.outbox)


class Coordinator(Party):
    """Asks BEATS questions, one after another, and says that it is over."""

    n = 0

    def turn(self) -> bool:
        asked, taken = self.journal.last("asked"), self.journal.last("taken")
        n, answered = (asked.n if asked else 0), (taken.n if taken else 0)
        if n == answered and answered < BEATS:
            self.journal.note("asked", n + 1)
            self.mailbox.forget(n)
            self.mailbox.dispatch(n + 1, ask(), question(n + 1))
        elif n > answered:
            if not self.mailbox.put_again(n, "ask"):
                self.mailbox.dispatch(n, ask(), question(n))
            letter = self.mailbox.newest("answer", after=answered)
            if letter is not None:
                assert letter.n == n
                assert torch.equal(letter.vectors["sum"], question(n)["w"] + n)
                self.journal.note("taken", n)
        elif not self.mailbox.put_again(BEATS + 1, "end"):
            self.mailbox.dispatch(BEATS + 1, EndRecord(life=LIFE))
        return n == answered == BEATS


class Site(Party):
    """Answers the newest question."""

    def turn(self) -> bool:
        answered = self.journal.last("answered")
        last = answered.n if answered else 0
        letter = self.mailbox.newest("ask", "end", after=last)
        if letter is None:
            if last and not self.mailbox.put_again(last, "answer"):
                raise AssertionError("an answer was journalled that is not on the disk")
            return False
        if isinstance(letter.record, EndRecord):
            return True
        assert letter.n == last + 1  # each question is waited for here
        assert letter.record == ask()
        assert torch.equal(letter.vectors["w"], question(letter.n)["w"])
        self.mailbox.forget(letter.n)
        answer = AnswerRecord(life=LIFE, asked=letter.record.question(letter.vectors), report=Report())
        sealed = self.mailbox.seal(letter.n, answer, {"sum": letter.vectors["w"] + letter.n})
        self.journal.note("answered", letter.n, sha256=sealed.sha256)
        self.mailbox.put(sealed)
        return False


def question(n: int) -> dict[str, torch.Tensor]:
    return {"w": torch.arange(300, dtype=torch.float64) * n}


def run(draw: Random, folder: Path, in_memory: bool) -> dict[str, int]:
    if in_memory:
        near: Shared = {"down": {}, "up": {}}
        far: Shared = {"down": {}, "up": {}}
        links = (lambda: MemoryLink(near, "down")), (lambda: MemoryLink(far, "up"))
        files = near["down"], far["down"], far["up"], near["up"]
    else:
        for name in ("near", "far"):
            (folder / name).mkdir()
        links = (
            lambda: FolderLink(folder / "near", SITE.public, "down"),
            lambda: FolderLink(folder / "far", SITE.public, "up"),
        )
        sides = [folder / name / SITE.public[:16] for name in ("near", "far")]
        files = tuple(FolderFiles(path) for path in (sides[0] / "down", sides[1] / "down"))
        files += tuple(FolderFiles(path) for path in (sides[1] / "up", sides[0] / "up"))
    copiers = [WorstCopier(draw, *files[:2]), WorstCopier(draw, *files[2:])]
    coordinator = Coordinator(folder, links[0], COORDINATOR, SITE)
    site = Site(folder, links[1], SITE, COORDINATOR)
    over = False
    for turn in range(600):
        who = draw.choice((coordinator, site, *copiers))
        if isinstance(who, WorstCopier):
            who.step()
        elif draw.random() < 0.1:
            who.live()
        elif who.turn() and who is site:
            over = True
            break
        if turn > 150 and turn % 8 == 0:  # the provider comes to its senses, and so all ends
            for copier in copiers:
                copier.calm()
    assert over
    return copiers[0].counts + copiers[1].counts


@pytest.mark.parametrize("in_memory", [True, False])
def test_all_letters_arrive_as_sent_over_the_worst_copier(monkeypatch, in_memory):
    monkeypatch.setattr(letter_format, "PIECE", 1000)
    counts, most = {}, SCHEDULES if in_memory else SCHEDULES // 8

    @given(st.integers(0, 10**9))
    @settings(
        max_examples=SCHEDULES, suppress_health_check=list(HealthCheck), deadline=None, derandomize=True
    )
    def schedules(seed):
        with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as folder:
            for harm, count in run(Random(seed), Path(folder), in_memory).items():
                counts[harm] = counts.get(harm, 0) + count

    schedules()
    assert len(counts) == 7
    assert min(counts.values()) > most
