"""What a server has let out: its secret, and a ledger in its run folder, by which epsilon can only grow."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpifl.common import InputError, RoundLost
from mpifl.common.machine import moved_from, processor
from mpifl.run.job.tables import PrivacySettings
from mpifl.wings.privacy.accountant import Steps, epsilon_of
from mpifl.wings.privacy.budgets import Budgets
from mpifl.wings.privacy.draws import Draws
from mpifl.wings.privacy.secret import FOLDER, KEY, Secret
from mpifl.wings.privacy.site_budget import BudgetEntry, SiteFolder

EVENTS, LINES, ANSWERS_LEFT = "privacy events", "privacy answers", "privacy left"
"""In the server's state: how many answers the ledger had, by what these are known, and how many more the
budget allowed after the last, if there is one."""


class Account:
    """The secret and the ledger of a server; its folder is opened, and made, when it is first needed.

    Args:
        run: The run folder.
        settings: The job's `[privacy]`.
        job: The job's name.
        digest: Of all of the job that an answer follows from.
        rounds: How many the job asks for.
    """

    def __init__(self, run: Path, settings: PrivacySettings, job: str, digest: str, rounds: int) -> None:
        self.folder = run / FOLDER
        self._secret = Secret(self.folder)
        self._settings, self._job, self._digest, self._rounds = settings, job, digest, rounds
        limits = [] if settings.epsilon is None else [(settings.epsilon, settings.delta)]
        self._budgets = Budgets(limits, settings.accountant)

    @property
    def _site(self) -> SiteFolder:
        return self._secret.site

    def check(self, state: Mapping[str, Any]) -> None:
        """See that this is the secret and the ledger with which a training has begun.

        Raises:
            InputError: it is not.
        """
        if KEY not in state:
            return
        self._secret.check(state)
        entries, events = self._site.entries(), state[EVENTS]
        if len(entries) < events:
            what = f"has fewer answers than the {events} that this run has let out"
        elif state.get(LINES, known := self._known_by(entries[:events])) != known:
            what = f"does not begin with the {events} answers that this run has let out"
        else:
            return
        raise InputError(f"{self.folder}/ledger.jsonl: {what}; put back a copy that is whole")

    def draws(self, *purpose: str | int) -> Draws:
        """Return a stream of numbers that follow from the secret, the job and what they are for."""
        return self._secret.draws(self._digest, *purpose)

    def release(self, question: str, answer: str, round: int, step: Steps) -> dict[str, int]:
        """Note an answer before it is let out; one that was let out before costs nothing again.

        Args:
            question: The digest of all that the answer follows from, but the secret.
            answer: The digest of the answer.
            round: Rounds done before it.
            step: What it costs.

        Returns:
            What the server's state is to hold of it.

        Raises:
            InputError: the ledger holds another answer to this question, or cannot be written.
            RoundLost: it would pass the budget.
        """
        if self._site.answered(question) is None:
            self._site.record(lambda: self._entry(question, answer, round, step))
        entry = self._site.answered(question)
        assert entry is not None
        if entry.answer != answer:
            what = "the same question would get another answer, whose difference no noise protects"
            where = moved_from(entry.processor)
            raise InputError(f"{what}; go on with the software and the machine that answered it first{where}")
        left, entries = {} if entry.left is None else {ANSWERS_LEFT: entry.left}, self._site.entries()
        return {KEY: self._secret.known_by, EVENTS: len(entries), LINES: self._known_by(entries), **left}

    def _entry(self, question: str, answer: str, round: int, step: Steps) -> BudgetEntry:
        entries, key = self._site.entries(), (self._digest, round)
        before = _of_rounds(one for one in entries if (one.run, one.round) != key)
        again = [steps for one in entries if (one.run, one.round) == key for steps in one.steps]
        if self._budgets.room(before, whole := _together([*again, step])) == 0:
            raise RoundLost(f"another answer would pass [privacy] {self._budgets}", in_vain=True)
        more = Steps(step.noise, step.rate, self._rounds - round - 1)
        about: dict[str, Any] = {"silo": "", "shard": "", "job": self._job, "run": self._digest}
        return BudgetEntry(
            question=question,
            answer=answer,
            round=round,
            taken=[(step.noise, step.rate, step.count)],
            total=len(entries) + 1,
            left=self._budgets.room([*before, whole], more),
            processor=processor(),
            **about,
        )

    def _known_by(self, entries: Sequence[BudgetEntry]) -> int:
        """Return a number that tells these answers, and what each has cost, from any others.

        A question holds the sum without noise, so that only who has the secret may find the number.
        """
        told = "\n".join(["mpifl answers", *(f"{one.question} {one.taken}" for one in entries)])
        return int.from_bytes(hmac.new(self._site.secret, told.encode(), hashlib.sha256).digest()[:6], "big")

    def epsilon(self) -> float:
        """Return the epsilon of all answers that were ever let out from here."""
        spent = _of_rounds(self._site.entries())
        return epsilon_of(spent, self._settings.delta, self._settings.accountant)


def _of_rounds(entries: Iterable[BudgetEntry]) -> list[Steps]:
    """Return what each round has cost, however often it was answered."""
    rounds: dict[tuple[str, int], list[Steps]] = {}
    for entry in entries:
        rounds.setdefault((entry.run, entry.round), []).extend(entry.steps)
    return [_together(steps) for steps in rounds.values()]


def _together(steps: Sequence[Steps]) -> Steps:
    """Return the one step that tells as much as all answers of a round, whose silos are drawn once.

    Gaussian answers of the same silos tell as much as one of noise (sum z^-2)^(-1/2).
    """
    first, *others = steps
    if not others:
        return first
    return Steps(sum(one.count / one.noise**2 for one in steps) ** -0.5, first.rate, 1)
