"""Simulated worlds: every rank in one process, each interleaving and death by a seed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.simulated import planted
from tests.simulated.drawing import drawn, every_death
from tests.simulated.schedule import VERSION, OtherVersion, Schedule
from tests.simulated.shrinking import shrunk, verdict_of
from tests.simulated.trainings import WAYS, Yard, yard as lent

SLOW = bool(os.environ.get("MPIFL_SLOW"))
STEP, SEEDS, LOOKS = (7, 300, 40) if SLOW else (97, 16, 12)
"""Every so manieth call has a death; so many schedules are drawn; so many look for a planted fault."""
QUICK = (
    *("a verdict is sent twice", "silos stay lost with their rank", "a node's silos stay lost"),
    *("files are not flushed", "a torn checkpoint ends a run", "what a rank reports is believed"),
    *("a training that is asked to end counts as done", "a rank waits by the clock of the day"),
)
PLANTED = list(planted.FAULTS) if SLOW else QUICK
CASES = {
    "a checkpoint amid which silos move fits the server's state": [
        Schedule(way="scaffold", ranks=2, survive=True, kill=((1, "Isend REPORT", nth),), surprises=0)
        for nth in (10, 11)
    ],
    "a checkpoint counts when the lines of its rounds are on the disk": [
        Schedule(ranks=2, halt=halt, resume=1, power=0, surprises=0) for halt in range(200, 440, 60)
    ],
    "nor does it count without a line that had no room": [
        Schedule(
            way="deadline",
            seed=7013990,
            ranks=2,
            eager=0,
            survive=True,
            kill=((0, "", 245),),
            surprises=401,
            disk=("full", 9, 10),
        )
    ],
    "a relayed verdict that is no text ends its rank by a line": [
        Schedule(way="momentum", seed=7041379, ranks=4, nodes=1, surprises=0, lies=(2, 1, 798207069))
    ],
    "a liar may see to it that no checkpoint counts": [
        Schedule(way="scaffold", seed=6098631, eager=1 << 30, turns=True, lies=(1, 4, 508083152))
    ],
    "lines that had no room follow when the model has": [
        Schedule(ranks=2, resume=1, disk=("full", first, first + 5), surprises=0) for first in range(7, 19, 2)
    ],
}
"""Faults that were found, by what holds since; who dies when stands by what it is about to do."""


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    with lent() as found:
        yield found


def held(yard: Yard, schedule: Schedule) -> str:
    """Try a schedule, and return what came of it; a fault fails with the line that gives it again."""
    found = verdict_of(yard, schedule)
    assert not found.is_fault, (
        f"python -m tests.simulated --replay '{schedule.line}'\n{found.kind}: {found.what}"
    )
    return found.kind


@pytest.mark.parametrize("what", CASES)
def test_what_was_found_stays_mended(yard: Yard, what: str) -> None:
    for schedule in CASES[what]:
        held(yard, schedule)


def test_a_death_at_any_call_leaves_the_same_bits(yard: Yard) -> None:
    calm = yard.tried(Schedule(survive=True))
    calls = [rank.calls for rank in calm.world.ranks]
    calm.world.close()
    kinds = [held(yard, schedule) for schedule in every_death("fedavg", 3, calls, STEP)]
    assert kinds.count("same") > len(kinds) / 2


@pytest.mark.parametrize("part", range(2))
def test_schedules_that_a_seed_draws_come_to_an_end_and_the_bits(yard: Yard, part: int) -> None:
    kinds = [held(yard, drawn(seed)) for seed in range(part, SEEDS, 2)]
    assert "same" in kinds


def test_the_same_line_gives_the_same_schedule_again(yard: Yard) -> None:
    schedule = Schedule.of(drawn(5, "median", "late death").line)
    traces = []
    for _ in range(2):
        ended = yard.tried(schedule)
        traces.append([(rank.clock, rank.calls, rank.state) for rank in ended.world.ranks])
        ended.world.close()
    assert traces[0] == traces[1]


def test_a_line_of_another_version_says_so() -> None:
    with pytest.raises(OtherVersion, match=f"version {VERSION + 1}, schedules here are of version {VERSION}"):
        Schedule.of(Schedule().line.replace(f'"version": {VERSION}', f'"version": {VERSION + 1}'))
    with pytest.raises(OtherVersion, match="no line of a schedule"):
        Schedule.of("[1]")
    with pytest.raises(OtherVersion, match="has no 'rank'"):
        Schedule.of(f'{{"version": {VERSION}, "rank": 3}}')


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(yard: Yard, name: str) -> None:
    assert planted.looked_for(yard, name, LOOKS) is not None


def test_a_fault_shrinks_to_what_it_takes(yard: Yard) -> None:
    large = Schedule(
        seed=3, ranks=4, nodes=2, turns=True, survive=True, kill=((1, "", 150), (2, "", 300)), eager=0
    )
    tried = []

    def fails(schedule: Schedule) -> bool:
        tried.append(schedule)
        return any(rank == 2 for rank, *_ in schedule.kill)

    assert shrunk(large, fails, 900) == Schedule(
        seed=3, ranks=3, survive=True, kill=((2, "", 300),), surprises=0
    )
    assert len(tried) < 40


@pytest.mark.parametrize("way", WAYS if SLOW else ["columns", "masks"])
def test_a_way_comes_to_the_same_bits_on_any_ranks(yard: Yard, way: str) -> None:
    for ranks in (2, 3, 4):
        assert held(yard, Schedule(way=way, ranks=ranks, nodes=2)) == "same"
