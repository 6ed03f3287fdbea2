"""How much of a run a private silo's budget allows, for the start of a training and for `mpifl privacy`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mpifl.common import BudgetSpent, InputError, Names
from mpifl.data.shards import AnySpec, Shard
from mpifl.run.job import Job
from mpifl.wings.dpsgd.privacy_plan import SiloPlan, drawn_from, guard_of, rate_of_sum, round_of
from mpifl.wings.dpsgd.private_silo import Guard, environment_of
from mpifl.wings.privacy import Budgets, OfSilo, SiteFolder, Steps, epsilon_of, noise_for, open_site
from mpifl.wings.site import SITES_FILE, VARIABLE, lists_sites


@dataclass(frozen=True)
class Room:
    """How many steps of a run a silo has taken, and how many more its budgets allow.

    Attributes:
        steps: The steps of a round.
        done: The steps that its site's ledger has of this run on these shards, by this software and machine.
        room: The steps that are allowed after all that the ledger has, at most those that the run still asks
            for.
        rounds: The rounds of the run.
    """

    steps: int
    done: int
    room: int
    rounds: int

    @property
    def allowed(self) -> int:
        """The rounds of the run that the budgets allow, with those that were answered before."""
        return min((self.done + self.room) // self.steps, self.rounds)

    @property
    def left(self) -> int:
        """The rounds of the run that can still be answered at a cost."""
        return self.room // self.steps


class Rooms:
    """The rooms of silos' budgets for a run.

    Args:
        guard: What the private silos of a site share.
        device: Where silos train, if that is known. By another PyTorch, device or number of threads the
            questions are others, and cost anew.
    """

    def __init__(self, job: Job, spec: AnySpec, guard: Guard, device: torch.device | None = None) -> None:
        self._environment = environment_of(device)
        self._job, self._spec, self._guard = job, spec, guard
        self._trainings = job.build_algorithm().trainings
        self.names = Names([entry.name for entry in spec.silos])

    def of(self, silo: int) -> Room | None:
        """Return a silo's room; None if neither job nor site sets a budget."""
        guard, one = self._guard, self._round_of(silo)
        before = self._before(silo)
        run = guard.run, guard.names[silo], guard.shards[silo]
        done = before.asked_alike(run, self._environment)
        room = guard.budgets.room(before.spent, replace(one, count=max(one.count * guard.rounds - done, 0)))
        return None if room is None else Room(one.count, done, room, guard.rounds)

    def _round_of(self, silo: int) -> Steps:
        """Return the steps that a round asks of a silo."""
        batch, steps = round_of(self._job, self._spec, silo, self._trainings)
        summed = self._guard.scale is not None
        examples = drawn_from(self._spec.silos[silo], self._trainings)
        rate = rate_of_sum(self._job, self._spec) if summed else batch / examples
        return Steps(self._guard.noise[silo], rate, steps)

    def _before(self, silo: int) -> OfSilo:
        return self._guard.site.of_silo(self._guard.names[silo], self._guard.shards[silo])

    def told(self, silo: int, found: Room) -> str:
        """Return the line for a silo whose budget does not allow all rounds."""
        drawn = "" if self._job.cohort.fraction == 1.0 else " in which it is asked"
        more = replace(self._round_of(silo), count=found.room + found.steps)
        binding = self._guard.budgets.binding(self._before(silo).spent, more)
        allowed = f"allows {found.allowed} of {found.rounds} rounds{drawn}, by {binding}"
        ends = "the run ends when a budget does, with its model written"
        return f"silo {self.names[silo]}: its privacy budget {allowed}; {ends}"

    def refused(self, silo: int, found: Room) -> str:
        """Return why a silo can take no part; "" if it can."""
        if found.allowed or found.done:
            return ""
        return self._guard.budgets.refusal(self._before(silo).spent, self._round_of(silo))

    def advice(self, silo: int) -> str:
        """Return what would allow a refused silo more. Where noise is sought, that takes seconds."""
        settings, limit, rounds = self._guard.settings, self._guard.site.budget, self._guard.rounds
        one, spent, way = self._round_of(silo), self._before(silo).spent, settings.accountant
        if settings.epsilon is not None and limit is None:
            return "a larger privacy.epsilon would allow more"
        if settings.epsilon is not None and limit is not None and limit.epsilon > settings.epsilon:
            noise = noise_for(limit.epsilon, settings.delta, one.rate, one.count * rounds, way)
            limits = [(limit.epsilon, settings.delta), (limit.epsilon, limit.delta)]
            room = Budgets(limits, way).room(spent, Steps(noise, one.rate, one.count * rounds)) or 0
            if room >= one.count:
                many = f"{room // one.count} of {rounds} rounds"
                return f"privacy.epsilon = {limit.epsilon:g} would allow {many} there"
        return f"a larger epsilon in {self._guard.site.folder}/budget.toml would allow more"


def room_check(job: Job, spec: AnySpec, guard: Guard, device: torch.device) -> Callable[[int, Shard], None]:
    """Return a check of a silo's budget for a run. It says on stderr if the budget does not allow all rounds:
    one line for a rank, and another only for a silo whose budget allows fewer.

    The check raises BudgetSpent if the budget allows no round. It passes a silo that has already answered
    questions of this run on the same shard by this software and machine, since it may answer them again at no
    cost.
    """
    rooms, fewest = Rooms(job, spec, guard, device), [guard.rounds]

    def look(silo: int, shard: Shard) -> None:
        found = rooms.of(silo)
        if found is None or found.allowed >= fewest[0]:
            return
        if why := rooms.refused(silo, found):
            raise BudgetSpent(why)
        fewest[0] = found.allowed
        print(rooms.told(silo, found), file=sys.stderr, flush=True)

    return look


def check_site(job: Job) -> SiteFolder | None:
    """Check that this machine's site allows a job whose silos draw noise; return its folder, None if
    MPIFL_SITE names one without a key yet, since nothing was spent there. Write nothing.

    Raises:
        InputError: MPIFL_SITE is not set, the folder is damaged, or it allows no such job.
    """
    given = os.environ.get(VARIABLE)
    if given and not (Path(given).expanduser() / "key").exists():
        return None
    check_site_allows(job, site := open_site())
    return site


def check_budgets(job: Job, spec: AnySpec, noise: Sequence[float], silos: Collection[int]) -> list[str]:
    """Check what this machine's site leaves of its budgets to a job, before ranks start; write nothing.

    Args:
        job: The job, whose silos draw noise.
        noise: Each silo's noise multiplier.
        silos: The silos that lie on this machine.

    Returns:
        A line for each silo whose budget does not allow all rounds; none if MPIFL_SITE names no folder with a
        key yet, since nothing was spent there, or no silo lies here.

    Raises:
        InputError: MPIFL_SITE is not set, the folder is damaged, it allows no such job, or the budget of a
            silo is spent.
    """
    if not silos or (site := check_site(job)) is None:
        return []
    rooms, told = Rooms(job, spec, guard_of(job, spec, noise, site)), list[str]()
    for silo in silos:
        found = rooms.of(silo)
        if found is not None and (why := rooms.refused(silo, found)):
            raise BudgetSpent(f"silo {rooms.names[silo]}: {why}; {rooms.advice(silo)}")
        told += [rooms.told(silo, found)] if found is not None and found.allowed < found.rounds else []
    return told


@dataclass(frozen=True)
class LeftHere:
    """What a silo's budget at a site leaves of a job.

    Attributes:
        silo: The silo's name.
        spent: The epsilon of all that the site's ledger has of the silo, at the delta of the site's budget,
            or else of the job.
        room: Its room; None if neither job nor site sets a budget.
    """

    silo: str
    spent: float
    room: Room | None


def left_here(
    job: Job, spec: AnySpec, planned: Sequence[SiloPlan], site: SiteFolder
) -> tuple[list[LeftHere], str, str]:
    """Return what a site's budget leaves of a job at each silo, by the arithmetic of a training's start.

    Beside it stand the line for the silo with the fewest rounds, "" if it is allowed all, and why it is
    refused, "" if it is not.

    Args:
        job: The job, with noise at its silos.
        planned: Each silo's plan.
        site: The site's folder.

    Raises:
        InputError: the site's budget allows no such job.
    """
    assert job.privacy is not None
    check_site_allows(job, site)
    guard = guard_of(job, spec, [plan.noise for plan in planned], site)
    rooms, delta = Rooms(job, spec, guard), site.budget.delta if site.budget else job.privacy.delta
    found = list[LeftHere]()
    for silo, plan in enumerate(planned):
        spent = site.of_silo(guard.names[silo], guard.shards[silo]).spent
        found.append(LeftHere(plan.name, epsilon_of(spent, delta, job.privacy.accountant), rooms.of(silo)))
    known = [(one.room, silo) for silo, one in enumerate(found) if one.room is not None]
    room, silo = min(known, key=lambda one: one[0].allowed, default=(None, 0))
    if room is None or room.allowed >= room.rounds:
        return found, "", ""
    if why := rooms.refused(silo, room):
        return found, "", f"silo {planned[silo].name}: {why}; {rooms.advice(silo)}"
    return found, rooms.told(silo, room), ""


def check_site_allows(job: Job, site: SiteFolder) -> None:
    """Check that a job asks a site with a budget for nothing that the budget does not count.

    Raises:
        InputError: it does.
    """
    if site.budget is None or job.privacy is None:
        return
    path = site.folder / "budget.toml"
    if job.privacy.evaluate_unprotected and not site.budget.evaluate_unprotected:
        what = "has no evaluate_unprotected = true, and the job asks for figures without noise"
        raise InputError(
            f"{path}: {what} by this key of [privacy]; write it there, or leave it out of the job"
        )
    if job.privacy.in_sum and not lists_sites():
        what = "noise_at = 'sum' takes the other sites' part of the noise on the server's word"
        raise InputError(
            f"{path}: [privacy] {what}; list the sites in {SITES_FILE}, or use noise_at = 'silo'"
        )
