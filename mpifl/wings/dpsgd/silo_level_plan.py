"""The mechanism of each round with `[privacy] level = "silo"`, and the accounting of its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpifl.algorithms import Server
from mpifl.common import InputError
from mpifl.report.observers import Record
from mpifl.run.job import Job
from mpifl.run.job.tables import POISSON
from mpifl.training import Coins
from mpifl.wings.dpsgd.privacy_plan import digest_of
from mpifl.wings.privacy import (
    ANSWERS_LEFT,
    Account,
    SiloMechanism,
    Steps,
    check_countable,
    epsilon_of,
    noise_for,
)

LOUD = 3.0
"""A warning is given if the norm of the noise on a mean is more than so many clip norms."""


def mechanism_of(job: Job, silos: int) -> SiloMechanism:
    """Return the mechanism of each round of a job with so many silos.

    Raises:
        InputError: no noise meets the budget, an adaptive clip's bits leave no room for it, or
            `dp-accounting` is needed and not installed.
    """
    privacy, cohort = job.privacy, job.cohort
    assert privacy is not None
    rate = cohort.fraction if cohort.select == POISSON else 1.0
    check_countable([rate])
    noise = privacy.noise
    if noise is None:
        assert privacy.epsilon is not None
        noise = noise_for(privacy.epsilon, privacy.delta, rate, job.rounds, privacy.accountant)
    quantile = (privacy.quantile or 0.5) if privacy.is_adaptive else None
    made = SiloMechanism(cohort.expected(silos), rate, noise, quantile)
    if privacy.is_adaptive and noise >= 2 * made.bits_deviation:
        most = f"the bits of {made.expected:g} silos leave room for noise below {2 * made.bits_deviation:g}"
        raise InputError(
            f"[privacy] clip = 'adaptive': {most}, and it is {noise:g}; use clip as a number, or more silos"
        )
    return made


def account_of(job: Job, run: Path) -> Account:
    """Return the released account of a run."""
    assert job.privacy is not None
    return Account(run, job.privacy, job.name, digest_of(job), job.rounds)


def coins_of(job: Job, silos: int, run: Path) -> Coins | None:
    """Return a function that draws the silos of a round in secret, if the job asks for this."""
    if job.cohort.select != POISSON:
        return None
    account = account_of(job, run)

    def coins(server: Server) -> NDArray[np.bool_]:
        account.check(server.state)
        taken = account.draws("cohort", server.round).chosen(silos, job.cohort.fraction)
        found = np.zeros(silos, dtype=np.bool_)
        found[taken.numpy()] = True
        return found

    return coins


class SiloAccounting:
    """The cost of all rounds so far, by the server's ledger.

    Args:
        run: The run folder.
    """

    def __init__(self, job: Job, run: Path) -> None:
        self._job, self._account = job, account_of(job, run)

    def figures(self, state: Mapping[str, Any], round: int) -> Record:
        """Return the epsilon of all releases, and how many more rounds the budget allows."""
        left = state.get(ANSWERS_LEFT)
        found: Record = {} if left is None else {"budget_left": left}
        if round % self._job.evaluate.every and round != self._job.rounds and left != 0:
            return found
        return found | {"epsilon": self._account.epsilon()}


def figures_of_rounds(job: Job, mechanism: SiloMechanism, rounds: int) -> float:
    """Return the epsilon of a number of rounds."""
    assert job.privacy is not None
    steps = Steps(mechanism.noise, mechanism.rate, rounds)
    return epsilon_of([steps], job.privacy.delta, job.privacy.accountant)


def loudness(mechanism: SiloMechanism, parameters: int) -> float:
    """Return the norm of the noise on a mean of so many numbers, in units of the clip norm."""
    return mechanism.noise_of_updates * math.sqrt(parameters) / mechanism.expected


def warning_of(job: Job, silos: int, parameters: int) -> list[str]:
    """Return a warning if the noise is too large for the silos' updates to be visible."""
    mechanism = mechanism_of(job, silos)
    if (times := loudness(mechanism, parameters)) <= LOUD:
        return []
    what = f"the noise is {times:.3g} times as long as a clipped update: z sqrt(P) / silos"
    numbers = f"{mechanism.noise_of_updates:.3g} sqrt({parameters:,}) / {mechanism.expected:g}"
    return [f"[privacy] level = 'silo': {what} = {numbers}; use more silos a round, or a smaller model"]
