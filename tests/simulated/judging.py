"""What may come of a schedule, and what is a fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpifl.common import DeviceLost, InputError, Misled, RoundLost, StartLost
from tests.simulated.schedule import Schedule
from tests.simulated.trainings import LINES, WAYS, Ended
from tests.simulated.world import Rank

FAULTS = ("hang", "crash", "rule", "bits", "state", "rounds", "left", "lost")
"""Verdicts that are faults: it came to no end; a rank ended by a traceback; MPI was used against its rules;
other bits where the same are promised; what silos keep does not fit the server's; a round stands twice or is
missing; something is under way after the end; it ended with a line though nothing was the matter."""


@dataclass(frozen=True)
class Verdict:
    """What came of a schedule: a kind, and of a fault what is wrong."""

    kind: str
    what: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether this must not be."""
        return self.kind in FAULTS


def judged(schedule: Schedule, ended: Ended, truth: Ended) -> Verdict:
    """Hold what came of a schedule against what is promised.

    Args:
        schedule: What was tried.
        ended: How it ended, its threads still standing.
        truth: How the same training ends in a calm world of one rank.
    """
    world, way = ended.world, WAYS[schedule.way]
    if world.hang:
        # by design a rank that does not answer is waited for, if there is no deadline
        waits = schedule.lies and "no end" in world.hang and schedule.way != "deadline"
        return Verdict("waits") if waits else Verdict("hang", world.hang)
    failed = [rank for rank in world.ranks if rank.error is not None]
    if schedule.lies:
        return _judged_lies(schedule.lies[0], failed)
    if crashed := [rank for rank in failed if not isinstance(rank.error, LINES)]:
        return Verdict("crash", f"rank {crashed[0].number}: {crashed[0].said}")
    if misled := [rank for rank in failed if isinstance(rank.error, Misled | DeviceLost)]:
        return Verdict("crash", f"rank {misled[0].number}: {misled[0].said}")
    if world.faults:
        return Verdict("rule", world.faults[0])
    if all(rank.state == "dead" for rank in world.ranks) or world.halted:
        return Verdict("dead")
    if told := [rank for rank in failed if rank.state != "dead"]:
        return _judged_line(schedule, [rank.error for rank in told])
    if not ended.model and schedule.disk and world.ranks[0].state == "dead":
        return Verdict("dead")  # it ended for its disk, had told the others, and died before it said why
    if not ended.model:
        return Verdict("left", "no rank ended with a line, and there is no model")
    if ended.rounds != truth.rounds:
        return Verdict("rounds", f"metrics.jsonl has rounds {ended.rounds}")
    if ended.notes:
        return Verdict("state", ended.notes)
    died = bool(schedule.kill or schedule.then or schedule.node)
    if ended.model != truth.model:
        allowed = (way.stateful and died) or (ended.late and (schedule.late or died))
        return Verdict("other") if allowed else Verdict("bits", f"{ended.model} in place of {truth.model}")
    if not (died or schedule.late) and (left := _left(ended)):
        return Verdict("left", left)
    return Verdict("same")


def _judged_line(schedule: Schedule, errors: list[BaseException | None]) -> Verdict:
    """Judge a line: it may be before all have met, where silos stay, and where ranks were late."""
    line, way = str(errors[0]), WAYS[schedule.way]
    if any(isinstance(error, StartLost) for error in errors):
        return Verdict("line", line)
    may_lose = bool(schedule.late) or (way.loses and bool(schedule.kill or schedule.node))
    may_lose |= bool(schedule.disk and not schedule.resume)
    expected = may_lose and all(isinstance(error, RoundLost | InputError) for error in errors)
    return Verdict("line" if expected else "lost", line)


def _judged_lies(liar: int, failed: Sequence[Rank]) -> Verdict:
    """Judge a world with a rank that lies: others may end by a line, and never by a traceback."""
    if crashed := [rank for rank in failed if rank.number != liar and not isinstance(rank.error, LINES)]:
        return Verdict("crash", f"rank {crashed[0].number}: {crashed[0].said}")
    return Verdict("refused" if failed else "lied")


def _left(ended: Ended) -> str:
    """Say what is left over after an end in which nobody died and nobody was late, "" if nothing."""
    world = ended.world
    for group in world.groups:
        for member, box in group.boxes.items():
            if box:
                return f"rank {member} did not take a message of rank {box[0].sender} (tag {box[0].tag})"
    for rank in world.ranks:
        wire = rank.transport
        held = [*wire._abandoned, *wire._underway, *wire._posted]
        if held:
            return f"rank {rank.number} holds {len(held)} things that others have not taken"
    return ""
