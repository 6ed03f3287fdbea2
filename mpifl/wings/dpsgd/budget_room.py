"""The check before the first round that a private silo's budget leaves room for the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from mpifl.common import BudgetSpent, InputError, Names
from mpifl.data.shards import AnySpec, Shard
from mpifl.run.job import Job
from mpifl.wings.dpsgd.privacy_plan import guard_of, rate_of_sum, round_of
from mpifl.wings.dpsgd.private_silo import Guard
from mpifl.wings.privacy import SiteFolder, Steps, open_site
from mpifl.wings.site import SITES_FILE, VARIABLE, lists_sites


def room_of(job: Job, spec: AnySpec, guard: Guard) -> Callable[[int, Shard], None]:
    """Return a check of a silo's budget for a run. It says on stderr if the budget does not allow all rounds.

    The check raises BudgetSpent if the budget allows no round. It passes a silo that has already answered
    questions of this run, since it may answer them again at no cost.
    """
    names = Names([entry.name for entry in spec.silos])

    def look(silo: int, shard: Shard) -> None:
        if allowed := _allowed(job, spec, guard, silo, len(shard["train"])):
            print(f"silo {names[silo]}: its privacy budget {allowed}", file=sys.stderr, flush=True)

    return look


def check_budgets(job: Job, spec: AnySpec, noise: Sequence[float], silos: Collection[int]) -> list[str]:
    """Check what this machine's site leaves of its budgets to a job, before ranks start; write nothing.

    Args:
        job: The job, whose silos draw noise.
        spec: The federation.
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
    site, names, told = open_site(), Names([entry.name for entry in spec.silos]), list[str]()
    guard = guard_of(job, spec, noise, site)
    check_site_allows(job, site)
    for silo in silos:
        try:
            allowed = _allowed(job, spec, guard, silo, spec.silos[silo].examples["train"])
        except BudgetSpent as error:
            raise BudgetSpent(f"silo {names[silo]}: {error}") from None
        told += [f"silo {names[silo]}: its privacy budget {allowed}"] if allowed else []
    return told


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
            f"{path}: [privacy] {what}; list the sites in {SITES_FILE}, or take noise_at = 'silo'"
        )


def _allowed(job: Job, spec: AnySpec, guard: Guard, silo: int, examples: int) -> str:
    """Return how many rounds a silo's budget allows, "" if all; raise BudgetSpent if none."""
    before = guard.site.of_silo(guard.names[silo], guard.shards[silo])
    batch, steps = round_of(job, spec, silo, job.build_algorithm().trainings)
    rate = rate_of_sum(job, spec) if guard.scale is not None else batch / examples
    done = before.by_run[guard.run]
    wanted = Steps(guard.noise[silo], rate, max(steps * guard.rounds - done, 0))
    room = guard.budgets.room(before.spent, wanted)
    if room is None or room >= wanted.count:
        return ""
    if not done and room < steps:
        spends = f"{steps} more steps would pass it, {room} would not"
        raise BudgetSpent(f"its privacy budget is spent: {guard.budgets}; {spends}")
    return f"allows {(done + room) // steps} of {guard.rounds} rounds: {guard.budgets}"
