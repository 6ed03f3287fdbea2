"""What a server has let out: its secret, and a ledger in its run folder, by which epsilon can only grow."""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpifl.common import InputError, RoundLost
from mpifl.privacy.accountant import Steps, epsilon_of
from mpifl.privacy.budgets import Budgets
from mpifl.privacy.draws import Draws
from mpifl.privacy.settings import PrivacySettings
from mpifl.privacy.site import Entry, Site

FOLDER = "privacy"
"""In a run folder: the server's secret and its ledger."""
KEY, EVENTS, ANSWERS_LEFT = "privacy key", "privacy events", "privacy left"
"""In the server's state: by what its secret is known, how many answers the ledger had, and how many more the
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
        self._settings, self._job, self._digest, self._rounds = settings, job, digest, rounds
        limits = [] if settings.epsilon is None else [(settings.epsilon, settings.delta)]
        self._budgets = Budgets(limits, settings.accountant)

    @functools.cached_property
    def _site(self) -> Site:
        return Site(self.folder, f"{self.folder}")

    @property
    def _known_by(self) -> int:
        """A number that tells one secret from another, and nothing more of it."""
        found = hmac.new(self._site.secret, b"mpifl known by", hashlib.sha256).digest()
        return int.from_bytes(found[:6], "big")

    def check(self, state: Mapping[str, Any]) -> None:
        """See that this is the secret and the ledger with which a training has begun.

        Raises:
            InputError: it is not.
        """
        if KEY not in state:
            return
        if not (self.folder / "key").exists() or state[KEY] != self._known_by:
            what = "has not the secret that this run began with, so its noise cannot be drawn again"
            raise InputError(f"{self.folder}: {what}; put the folder back, or start anew with another --out")
        if len(self._site.entries()) < state[EVENTS]:
            what = f"has fewer answers than the {state[EVENTS]} that this run has let out"
            raise InputError(f"{self.folder}/ledger.jsonl: {what}; put back a copy that is whole")

    def draws(self, *purpose: str | int) -> Draws:
        """Return a stream of numbers that follow from the secret, the job and what they are for."""
        return Draws(self._site.secret, self._digest, *purpose)

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
            raise InputError(f"{what}; go on with the software and the machine that answered it first")
        left = {} if entry.left is None else {ANSWERS_LEFT: entry.left}
        return {KEY: self._known_by, EVENTS: len(self._site.entries()), **left}

    def _entry(self, question: str, answer: str, round: int, step: Steps) -> Entry:
        before = self._spent()
        if self._budgets.room(before, step) == 0:
            raise RoundLost(f"another answer would pass [privacy] {self._budgets}", in_vain=True)
        more = Steps(step.noise, step.rate, self._rounds - round - 1)
        about: dict[str, Any] = {"silo": "", "shard": "", "job": self._job, "run": self._digest}
        return Entry(
            question=question,
            answer=answer,
            round=round,
            taken=[(step.noise, step.rate, step.count)],
            total=len(before) + 1,
            left=self._budgets.room([*before, step], more),
            **about,
        )

    def _spent(self) -> list[Steps]:
        return [one for entry in self._site.entries() for one in entry.steps]

    def epsilon(self) -> float:
        """Return the epsilon of all answers that were ever let out from here."""
        return epsilon_of(self._spent(), self._settings.delta, self._settings.accountant)
