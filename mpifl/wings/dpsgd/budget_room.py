"""What a private silo's budget leaves for a run, looked at before its first round."""

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
    """Return what sees that a silo's budget allows a round, and says on stderr if it does not allow all.

    A silo that has answered this run's questions answers them again for nothing, and is let pass. It raises
    BudgetSpent where nothing is allowed.
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
