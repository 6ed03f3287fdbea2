"""The check before the first round that a private silo's budget leaves room for the run."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mpifl.common import BudgetSpent, Names
from mpifl.data.shards import AnySpec, Shard
from mpifl.run.job import Job
from mpifl.wings.dpsgd.privacy_plan import rate_of_sum, round_of
from mpifl.wings.dpsgd.private_silo import Guard
from mpifl.wings.privacy import Steps


def room_of(job: Job, spec: AnySpec, guard: Guard) -> Callable[[int, Shard], None]:
    """Return a check of a silo's budget for a run. It says on stderr if the budget does not allow all rounds.

    The check raises BudgetSpent if the budget allows no round. It passes a silo that has already answered
    questions of this run, since it may answer them again at no cost.
    """
    trainings, names = job.build_algorithm().trainings, Names([entry.name for entry in spec.silos])

    def look(silo: int, shard: Shard) -> None:
        before = guard.site.of_silo(guard.names[silo], guard.shards[silo])
        batch, steps = round_of(job, spec, silo, trainings)
        rate = rate_of_sum(job, spec) if guard.scale is not None else batch / len(shard["train"])
        done = before.by_run[guard.run]
        wanted = Steps(guard.noise[silo], rate, max(steps * guard.rounds - done, 0))
        room = guard.budgets.room(before.spent, wanted)
        if room is None or room >= wanted.count:
            return
        if not done and room < steps:
            spends = f"{steps} more steps would pass it, {room} would not"
            raise BudgetSpent(f"its privacy budget is spent: {guard.budgets}; {spends}")
        allowed = f"allows {(done + room) // steps} of {guard.rounds} rounds: {guard.budgets}"
        print(f"silo {names[silo]}: its privacy budget {allowed}", file=sys.stderr, flush=True)

    return look
