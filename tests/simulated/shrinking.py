"""The smallest schedule that still fails as another does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from tests.simulated.judging import Verdict, judged
from tests.simulated.schedule import Schedule
from tests.simulated.trainings import Yard

MOST_TRIES = 40
Tries = Callable[[Schedule], Verdict]


def verdict_of(yard: Yard, schedule: Schedule) -> Verdict:
    """Run a schedule and judge what came of it."""
    truth = yard.truth(schedule.way)
    ended = yard.tried(schedule)
    try:
        found = judged(schedule, ended, truth)
    finally:
        left = ended.world.close()
    return Verdict("hang", f"{left} threads do not unwind") if left and not found.is_fault else found


def shrunk(schedule: Schedule, fails: Callable[[Schedule], bool], draws: int) -> Schedule:
    """Return a schedule that fails in the same way with less of everything.

    Troubles are left out one by one, then ranks and nodes, then what is unusual about the world; last the
    world is calm from the earliest draw on with which it still fails.

    Args:
        schedule: It fails.
        fails: Whether another does in the same way.
        draws: How many the failing schedule took.
    """
    tries = 0

    def still(other: Schedule) -> bool:
        nonlocal tries
        tries += 1
        return tries <= MOST_TRIES and fails(other)

    for _ in range(2):
        for other in _smaller(schedule):
            if still(merged := _with(schedule, other)):
                schedule = merged
    if schedule.surprises is None:
        schedule = _calmed(schedule, still, draws)
    return schedule


def _with(schedule: Schedule, changes: dict[str, object]) -> Schedule:
    return dataclasses.replace(schedule, **changes)  # type: ignore[arg-type]


def _smaller(schedule: Schedule) -> Iterator[dict[str, object]]:
    for name in ("kill", "late", "signal", "jump"):
        for one in getattr(schedule, name):
            yield {name: tuple(other for other in getattr(schedule, name) if other != one)}
    usual = Schedule()
    for name in ("then", "node", "disk", "power", "torn", "nodes", "turns", "bell", "memory", "eager"):
        if getattr(schedule, name) != getattr(usual, name):
            yield {name: getattr(usual, name)}
    told = (*schedule.kill, *schedule.late, *schedule.signal, *schedule.jump)
    most = max([0, *(one[0] for one in told)]) + 1
    for ranks in range(max(most, 1), schedule.ranks):
        yield {"ranks": ranks}
    if schedule.resume:
        yield {"resume": 1}


def _calmed(schedule: Schedule, still: Callable[[Schedule], bool], draws: int) -> Schedule:
    """Return the schedule with the fewest surprises, by bisection."""
    if still(calm := dataclasses.replace(schedule, surprises=0)):
        return calm
    low, high = 0, draws
    while high - low > 1:
        middle = (low + high) // 2
        if still(dataclasses.replace(schedule, surprises=middle)):
            high = middle
        else:
            low = middle
    return dataclasses.replace(schedule, surprises=high)
