"""The released account: the server's secret, and a ledger of all noised answers that it has released."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpifl.common import InputError, RoundLost
from mpifl.common.machine import processor
from mpifl.run.job.tables import PrivacySettings
from mpifl.wings.privacy.accountant import Steps, epsilon_of
from mpifl.wings.privacy.budgets import Budgets
from mpifl.wings.privacy.draws import Draws
from mpifl.wings.privacy.secret import FOLDER, KEY, Secret
from mpifl.wings.privacy.site_budget import BudgetEntry, SiteFolder

EVENTS, LINES, ANSWERS_LEFT = "privacy events", "privacy answers", "privacy left"
"""Entries of the server's state: the number of answers in the ledger, and a digest that identifies them.

With a budget the third is the number of further answers that it allowed after the last one."""


class Account:
    """The secret and the ledger of a server. Its folder is made and opened when it is first needed.

    Args:
        run: The run folder.
        settings: The job's `[privacy]`.
        job: The job's name.
        digest: The digest of all parts of the job that affect an answer.
        rounds: How many rounds the job asks for.
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
        """Check that the secret and the ledger are those with which the training has begun.

        Raises:
            InputError: one of them is not.
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
        """Return a stream of numbers that follow from the secret, the job and a purpose."""
        return self._secret.draws(self._digest, *purpose)

    def release(self, question: str, answer: str, round: int, step: Steps) -> dict[str, int]:
        """Note an answer before it is released. An answer that was released before costs nothing again.

        Args:
            question: The digest of all that the answer follows from, except the secret.
            answer: The digest of the answer.
            round: How many rounds were done before it.
            step: Its cost.

        Returns:
            The entries for the server's state.

        Raises:
            InputError: the ledger holds another answer to this question, or cannot be written.
            RoundLost: the answer would exceed the budget.
        """
        if self._site.answered(question) is None:
            self._site.record(lambda: self._entry(question, answer, round, step))
        entry = self._site.answered(question)
        assert entry is not None
        entry.check(answer)
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
        """Return a number that identifies these answers and their costs.

        It is keyed by the secret: a question is a digest of the sum without noise, and must not be guessed.
        """
        told = "\n".join(["mpifl answers", *(f"{one.question} {one.taken}" for one in entries)])
        return int.from_bytes(hmac.new(self._site.secret, told.encode(), hashlib.sha256).digest()[:6], "big")

    def epsilon(self) -> float:
        """Return the epsilon of all answers in the ledger."""
        spent = _of_rounds(self._site.entries())
        return epsilon_of(spent, self._settings.delta, self._settings.accountant)


def _of_rounds(entries: Iterable[BudgetEntry]) -> list[Steps]:
    """Return the cost of each round, over all its answers."""
    rounds: dict[tuple[str, int], list[Steps]] = {}
    for entry in entries:
        rounds.setdefault((entry.run, entry.round), []).extend(entry.steps)
    return [_together(steps) for steps in rounds.values()]


def _together(steps: Sequence[Steps]) -> Steps:
    """Return one step that costs as much as all answers of a round. A round draws its silos only once.

    Gaussian answers over the same silos reveal as much as one with the noise (sum z^-2)^(-1/2).
    """
    first, *others = steps
    if not others:
        return first
    return Steps(sum(one.count / one.noise**2 for one in steps) ** -0.5, first.rate, 1)
