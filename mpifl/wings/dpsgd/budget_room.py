"""How much of a run a private silo's budget allows, for the start of a training and for `mpifl privacy`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpifl.common import BudgetSpent, InputError, Names
from mpifl.data.shards import AnySpec, Shard
from mpifl.run.job import Job
from mpifl.wings.dpsgd.privacy_plan import SiloPlan, guard_of, rate_of_sum, round_of
from mpifl.wings.dpsgd.private_silo import Guard
from mpifl.wings.privacy import SiteFolder, Steps, epsilon_of, open_site
from mpifl.wings.site import SITES_FILE, VARIABLE, lists_sites


@dataclass(frozen=True)
class Room:
    """How many steps of a run a silo has taken, and how many more its budgets allow.

    Attributes:
        steps: The steps of a round.
        done: The steps that its site's ledger has of this run.
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
    """

    def __init__(self, job: Job, spec: AnySpec, guard: Guard) -> None:
        self._job, self._spec, self._guard = job, spec, guard
        self._trainings = job.build_algorithm().trainings
        self.names = Names([entry.name for entry in spec.silos])

    def of(self, silo: int) -> Room | None:
        """Return a silo's room; None if neither job nor site sets a budget."""
        guard, entry = self._guard, self._spec.silos[silo]
        before = guard.site.of_silo(guard.names[silo], guard.shards[silo])
        batch, steps = round_of(self._job, self._spec, silo, self._trainings)
        summed = guard.scale is not None
        rate = rate_of_sum(self._job, self._spec) if summed else batch / entry.examples["train"]
        done = before.by_run[guard.run]
        wanted = Steps(guard.noise[silo], rate, max(steps * guard.rounds - done, 0))
        room = guard.budgets.room(before.spent, wanted)
        return None if room is None else Room(steps, done, room, guard.rounds)

    def told(self, silo: int, found: Room) -> str:
        """Return the line for a silo whose budget does not allow all rounds."""
        drawn = "" if self._job.cohort.fraction == 1.0 else " in which it is asked"
        allowed = f"allows {found.allowed} of {found.rounds} rounds{drawn}: {self._guard.budgets}"
        ends = "the run ends when a budget does, with its model written"
        return f"silo {self.names[silo]}: its privacy budget {allowed}; {ends}"

    def refused(self, found: Room) -> str:
        """Return why a silo can take no part; "" if it can."""
        if found.allowed or found.done:
            return ""
        spends = f"{found.steps} more steps would pass it, {found.room} would not"
        return f"its privacy budget is spent: {self._guard.budgets}; {spends}"


def room_check(job: Job, spec: AnySpec, guard: Guard) -> Callable[[int, Shard], None]:
    """Return a check of a silo's budget for a run. It says on stderr if the budget does not allow all rounds:
    one line for a rank, and another only for a silo whose budget allows fewer.

    The check raises BudgetSpent if the budget allows no round. It passes a silo that has already answered
    questions of this run, since it may answer them again at no cost.
    """
    rooms, fewest = Rooms(job, spec, guard), [guard.rounds]

    def look(silo: int, shard: Shard) -> None:
        found = rooms.of(silo)
        if found is None or found.allowed >= fewest[0]:
            return
        if why := rooms.refused(found):
            raise BudgetSpent(why)
        fewest[0] = found.allowed
        print(rooms.told(silo, found), file=sys.stderr, flush=True)

    return look


def check_budgets(job: Job, spec: AnySpec, noise: Sequence[float], silos: Collection[int]) -> list[str]:
    """Check what this machine's site leaves of its budgets to a job, before ranks start; write nothing.

    Args:
        job: The job, whose silos draw noise.
        noise: Each silo's noise multiplier.
        silos: The silos that lie on this machine.

    Returns:
        A line for each silo whose budget does not allow all rounds; none if MPIFL_SITE names no folder with a
        key yet, since nothing was spent there.

    Raises:
        InputError: the folder is damaged, it allows no such job, or the budget of a silo is spent.
    """
    given = os.environ.get(VARIABLE)
    if not given or not (Path(given).expanduser() / "key").exists():
        return []
    site, told = open_site(), list[str]()
    rooms = Rooms(job, spec, guard_of(job, spec, noise, site))
    check_site_allows(job, site)
    for silo in silos:
        found = rooms.of(silo)
        if found is not None and (why := rooms.refused(found)):
            raise BudgetSpent(f"silo {rooms.names[silo]}: {why}")
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
        told: The line for the user; "" if all rounds are allowed.
    """

    silo: str
    spent: float
    room: Room | None
    told: str


def left_here(job: Job, spec: AnySpec, planned: Sequence[SiloPlan], site: SiteFolder) -> list[LeftHere]:
    """Return what a site's budget leaves of a job at each silo, by the arithmetic of a training's start.

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
        room, told = rooms.of(silo), ""
        if room is not None and room.allowed < room.rounds:
            why = rooms.refused(room)
            told = f"silo {plan.name}: {why}" if why else rooms.told(silo, room)
        spent = site.of_silo(guard.names[silo], guard.shards[silo]).spent
        found.append(LeftHere(plan.name, epsilon_of(spent, delta, job.privacy.accountant), room, told))
    return found


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
