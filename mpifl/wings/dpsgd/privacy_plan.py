"""The privacy cost of a training with `[privacy]`: planned before the first round, counted after each one."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, Names, did_you_mean
from mpifl.data.shards import AnyEntry, AnySpec
from mpifl.report.observers import Record
from mpifl.run.job import HARMLESS, Job, is_silo_level
from mpifl.run.job.tables import PrivacySettings
from mpifl.silo.steps import steps_of
from mpifl.wings.dpsgd.private_silo import Guard
from mpifl.wings.dpsgd.question_ledger import LEFT, STEPS
from mpifl.wings.privacy import Budgets, Draws, SiteFolder, Steps, check_countable, epsilon_of, noise_for

MOST_COUNTED = 16
"""Up to so many kinds of silos, every round computes each silo's epsilon; with more, only the largest."""
OUTSIDE = ("name", "shards", "device", "threads")
"""Keys that a job's digest leaves out, besides those that may change.

They affect no answer, or the question itself contains their effect."""


@dataclass(frozen=True)
class SiloPlan:
    """The noised steps that a training asks of one silo.

    Attributes:
        name: The silo's name.
        examples: How many examples it trains on; of a table, all its rows.
        batch: B, the expected number of examples in a step; it may be a fraction if noise is in the sum.
        steps: The noised steps in a round.
        noise: The noise multiplier.
    """

    name: str
    examples: int
    batch: float
    steps: int
    noise: float

    @property
    def rate(self) -> float:
        """q, the probability that a step draws an example."""
        return self.batch / self.examples

    def taking(self, steps: int) -> Steps:
        """Return a number of its steps."""
        return Steps(self.noise, self.rate, steps)


def plans(job: Job, spec: AnySpec, algorithm: Algorithm) -> list[SiloPlan]:
    """Return each silo's plan if it takes part in every round; [] for a job without noise at the silos.

    The search for the noise of an epsilon takes seconds for each size of a silo. A line on stderr says so.

    Raises:
        InputError: no noise meets the budget, or `dp-accounting` is needed and not installed.
    """
    if job.privacy is None or is_silo_level(job):  # `mpifl privacy` calls this for any job
        return []
    names = Names([entry.name for entry in spec.silos])
    if job.privacy.in_sum:
        return _together(job, spec, names)
    if job.privacy.noise_of is not None:
        _check_names(job.privacy.noise_of, [names[silo] for silo in range(len(spec.silos))])
    counts = [drawn_from(entry, algorithm.trainings) for entry in spec.silos]
    rounds = [round_of(job, spec, silo, algorithm.trainings) for silo in range(len(spec.silos))]
    check_countable(batch / count for (batch, _), count in zip(rounds, counts, strict=True))
    _tell_of_search(job, {entry.examples["train"] for entry in spec.silos})
    found, stated = list[SiloPlan](), stated_noise(job, spec)
    for silo, ((batch, steps), count) in enumerate(zip(rounds, counts, strict=True)):
        noise = stated[silo] or _noise(job, batch / count, steps * job.rounds)
        found.append(SiloPlan(names[silo], count, batch, steps, noise))
    return found


def drawn_from(entry: AnyEntry, trainings: int) -> int:
    """Return how many examples a silo's steps are of: all its rows where nothing is trained."""
    return entry.examples["train"] if trainings else sum(entry.examples.values())


def round_of(job: Job, spec: AnySpec, silo: int, trainings: int) -> tuple[int, int]:
    """Return the expected number of examples in a silo's step, and its number of steps in a round."""
    local, count = job.local, drawn_from(spec.silos[silo], trainings)
    if not trainings or (job.privacy is not None and job.privacy.in_sum):
        return count, 1
    if local.epochs_by_silo is not None:
        local = local.model_copy(update={"epochs": local.epochs_by_silo[silo % len(local.epochs_by_silo)]})
    batch = count if local.batch_size == "full" else min(local.batch_size, count)
    return batch, max(steps_of(local, count), 1) * trainings


def stated_noise(job: Job, spec: AnySpec) -> list[float | None]:
    """Return each silo's noise multiplier as the job states it; None if it follows from a budget."""
    if job.privacy is None:
        return [None] * len(spec.silos)
    names, own = Names([entry.name for entry in spec.silos]), job.privacy.noise_of or {}
    return [own.get(names[silo], job.privacy.noise) for silo in range(len(spec.silos))]


def _check_names(given: Mapping[str, float], names: Sequence[str]) -> None:
    if wrong := sorted(given.keys() ^ set(names)):
        what = f"there is no silo {wrong[0]}" if wrong[0] in given else f"has no noise of silo {wrong[0]}"
        hint = did_you_mean(wrong[0], names) if wrong[0] in given else ""
        raise InputError(f"[privacy] noise_of: {what}; {hint}name each of {', '.join(names[:8])} once")


def rate_of_sum(job: Job, spec: AnySpec) -> float:
    """Return q, the probability of each example, if a batch is drawn from all silos together."""
    examples, size = sum(entry.examples["train"] for entry in spec.silos), job.local.batch_size
    return 1.0 if size == "full" else min(size / examples, 1.0)


def _together(job: Job, spec: AnySpec, names: Names) -> list[SiloPlan]:
    """Return each silo's plan if the sum of gradients is noised: one step in a round."""
    assert job.privacy is not None
    rate = rate_of_sum(job, spec)
    check_countable([rate])
    _tell_of_search(job, {sum(entry.examples["train"] for entry in spec.silos)})
    noise = job.privacy.noise or _noise(job, rate, job.rounds)
    counts = [entry.examples["train"] for entry in spec.silos]
    return [SiloPlan(names[silo], count, rate * count, 1, noise) for silo, count in enumerate(counts)]


def _tell_of_search(job: Job, sizes: Collection[int]) -> None:
    """Say that the noise for an epsilon is searched, if no formula gives it."""
    privacy, size = job.privacy, job.local.batch_size
    assert privacy is not None
    drawn = isinstance(size, int) and any(examples > size for examples in sizes)
    if privacy.epsilon is not None and privacy.accountant == "pld" and drawn:
        many = f", of {len(sizes)} sizes of silos" if len(sizes) > 1 else ""
        line = f"[privacy] epsilon = {privacy.epsilon:g}: the least noise is sought{many}; each takes seconds"
        _say_once(line)


@functools.cache
def _say_once(line: str) -> None:
    """Print a line on stderr, once in a process."""
    print(line, file=sys.stderr, flush=True)


def _noise(job: Job, rate: float, steps: int) -> float:
    privacy = job.privacy
    assert privacy is not None
    assert privacy.epsilon is not None
    return noise_for(privacy.epsilon, privacy.delta, rate, steps, privacy.accountant)


def guard_of(job: Job, spec: AnySpec, noise: Sequence[float], site: SiteFolder) -> Guard:
    """Return what the private silos of a rank share.

    Args:
        noise: Each silo's noise multiplier.
        site: The folder of the rank's site.

    Raises:
        InputError: the library that draws noise is not installed.
    """
    assert job.privacy is not None
    budgets = {"the job's ": (job.privacy.epsilon, job.privacy.delta)} if job.privacy.epsilon else {}
    budgets |= {"the site's ": (site.budget.epsilon, site.budget.delta)} if site.budget else {}
    Draws(site.secret, "at the start")  # so that a missing library is an error at the start
    names = [entry.name or "" for entry in spec.silos]
    return Guard(
        site=site,
        settings=job.privacy,
        job=job.name,
        run=digest_of(job),
        rounds=job.rounds,
        names=names,
        shards=[entry.sha256 for entry in spec.silos],
        noise=noise,
        budgets=Budgets([*budgets.values()], job.privacy.accountant, [*budgets]),
        scale=(lambda round: job.local.at_round(round).lr) if job.privacy.in_sum and job.secure else None,
        rate=rate_of_sum(job, spec),
        federation=_digest_of_silos(spec),
    )


def _digest_of_silos(spec: AnySpec) -> str:
    told = [[one.name, one.sha256, sorted(one.examples.items())] for one in spec.silos]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def digest_of(job: Job, *more: str) -> str:
    """Return the digest of all parts of a job that affect an answer, and of some texts.

    Keys at their defaults are left out, so that a new key does not change digests. Masks are left out, too:
    they change no bit of an answer.
    """
    unasked: dict[str, Any] = {**dict.fromkeys((*HARMLESS, *OUTSIDE), True), "security": {"masks"}}
    told = job.model_dump_json(exclude=unasked, exclude_defaults=True)
    return hashlib.sha256("\n".join([told, *more]).encode()).hexdigest()


class KnownRun(NamedTuple):
    """The digests by which sites identify a run.

    Attributes:
        job: The digest of all that the run's sums follow from.
        run: The digest of `job` and of the run's id.
    """

    job: str
    run: str


def run_of(job: Job, spec: AnySpec, id: str) -> KnownRun:
    """Return the digests by which sites identify the run that has the server's `id`."""
    told = digest_of(job, *(entry.sha256 for entry in spec.silos))
    return KnownRun(told, hashlib.sha256(f"{told} {id}".encode()).hexdigest())


class Accounting:
    """The cost of all rounds so far, for the server to show. Each site keeps its own account.

    Args:
        planned: Each silo's plan, [] without `[privacy]`.
    """

    def __init__(self, job: Job, planned: Sequence[SiloPlan]) -> None:
        self._job, self._planned = job, planned

    def figures(self, state: Mapping[str, Any], round: int) -> Record:
        """Return the largest epsilon and each silo's, the noise, and how many rounds the budgets allow."""
        if self._job.privacy is None or (STEPS not in state and self._job.security is None):
            return {}
        found: Record = {}
        if self._job.privacy.clip is not None:
            found |= {"noise_std": self._deviation(self._job.privacy)}
        taken = self._taken(state, round)
        left = float(state[LEFT].min()) if LEFT in state else float("inf")
        found |= {"budget_left": int(left)} if left < float("inf") else {}
        if round % self._job.evaluate.every and round != self._job.rounds and left:
            return found
        return found | self._epsilons(taken, last=round == self._job.rounds or not left)

    def _taken(self, state: Mapping[str, Any], round: int) -> list[int]:
        """Return the steps of each silo as it reports them; if `[security]` hides them, the most possible."""
        if STEPS not in state:
            return [plan.steps * round for plan in self._planned]
        return [int(count) for count in state[STEPS].tolist()]

    def _deviation(self, privacy: PrivacySettings) -> float:
        """Return the deviation of the noise on a step's mean gradient, the largest of all silos."""
        if privacy.in_sum:
            return self._planned[0].noise * privacy.norm / sum(plan.batch for plan in self._planned)
        return max(plan.noise * privacy.norm / plan.batch for plan in self._planned)

    def _epsilons(self, taken: Sequence[int], last: bool) -> Record:
        asked = {plan.name: plan.taking(n) for plan, n in zip(self._planned, taken, strict=True)}
        kinds = set(asked.values())
        if len(kinds) > MOST_COUNTED and not last:
            worst = [one for one in kinds if not any(_costs_more(other, one) for other in kinds)]
            return {"epsilon": max(self.epsilon([one]) for one in worst)}
        each = {name: self.epsilon([steps]) for name, steps in asked.items()}
        return {"epsilon": max(each.values()), "epsilon_silos": each}

    def epsilon(self, taken: Sequence[Steps]) -> float:
        """Return the epsilon of steps at the job's delta."""
        assert self._job.privacy is not None
        return epsilon_of(taken, self._job.privacy.delta, self._job.privacy.accountant)


def _costs_more(one: Steps, other: Steps) -> bool:
    """Whether `one` costs at least as much as `other` in noise, rate and count, and differs from it."""
    no_less = one.noise <= other.noise and one.rate >= other.rate and one.count >= other.count
    return no_less and one != other


def figures_of_plan(job: Job, planned: Sequence[SiloPlan], rounds: int) -> list[float]:
    """Return each silo's epsilon after a number of rounds."""
    counted = Accounting(job, planned)
    return [counted.epsilon([plan.taking(plan.steps * rounds)]) for plan in planned]


def refuse_without(job: Job, source: str) -> None:
    """Check that a job has a table `[privacy]`.

    Raises:
        InputError: it has none.
    """
    if job.privacy is None:
        raise InputError(
            f"{source}: has no table [privacy]; give it one, with clip, noise or epsilon, and delta"
        )
