"""A schedule: all that is chosen of one simulated training, which its line gives again."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

VERSION = 2
"""Of the lines; it changes where the same line would give another schedule by what it says."""
Moment = tuple[int, str, int]
"""A rank, what it is about to do ("" for any call), and for which time."""
Thing = TypeVar("Thing")


class OtherVersion(ValueError):
    """A line that is no schedule of this version."""


@dataclass(frozen=True)
class Schedule:
    """One simulated training.

    Attributes:
        seed: Of all draws.
        way: The name of what is trained; see `ways`.
        ranks: How many there are.
        nodes: Ranks of a node; None for one node.
        eager: Bytes of a message up to which MPI buffers it.
        bell: Whether doorbells work.
        memory: Whether ranks may open each other's memory.
        turns: Whether all vectors are long, so that the ranks of a node take turns at them.
        survive: Whether ranks outlive a death, as under `--with-ft ulfm`.
        kill: Who dies when.
        then: A rank, and after how many of its calls since the first death it dies, too.
        late: Who sleeps when, and for how many seconds.
        halt: After how many calls of all ranks all are killed.
        resume: On how many ranks the training continues after that.
        timeout: Seconds of `MPIFL_TRANSFER_TIMEOUT`.
        surprises: After how many draws the world is calm; None for never.
        node: The number of a node, and after how many calls of all ranks all of its ranks die at once.
        signal: Who is asked to end when.
        jump: Whose clock of the day jumps when, and by how many seconds.
        disk: How writes fail, "full" or "broken", and the first and the last of them that do.
        power: With a halt: how many of the latest changes of the disk are lost, beside what was not flushed.
        torn: With a halt: which file of a checkpoint, counted around, is cut to half.
        lies: A rank, from its how manieth message on some have other bytes, and a seed of these.
    """

    seed: int = 0
    way: str = "fedavg"
    ranks: int = 3
    nodes: int | None = None
    eager: int = 4096
    bell: bool = True
    memory: bool = True
    turns: bool = False
    survive: bool = False
    kill: tuple[Moment, ...] = ()
    then: tuple[int, int] | None = None
    late: tuple[tuple[int, str, int, float], ...] = ()
    halt: int | None = None
    resume: int | None = None
    timeout: float = 2.0
    surprises: int | None = None
    node: tuple[int, int] | None = None
    signal: tuple[Moment, ...] = ()
    jump: tuple[tuple[int, str, int, float], ...] = ()
    disk: tuple[str, int, int] | None = None
    power: int | None = None
    torn: int | None = None
    lies: tuple[int, int, int] | None = None

    @property
    def line(self) -> str:
        """What gives this schedule again: what differs from the usual."""
        usual = Schedule()
        told = {name: value for name, value in vars(self).items() if value != getattr(usual, name)}
        return json.dumps({"version": VERSION, **told})

    @classmethod
    def of(cls, line: str) -> Schedule:
        """Return the schedule of a line.

        Raises:
            OtherVersion: it is of another version, or no line of one.
        """
        try:
            told: dict[str, Any] = json.loads(line)
            version = told.pop("version")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise OtherVersion(f"{line[:80]!r} is no line of a schedule: {Schedule().line}") from None
        if version != VERSION:
            what = f"the line is of version {version}, schedules here are of version {VERSION}"
            raise OtherVersion(f"{what}; try it on the checkout that printed it")
        if unknown := told.keys() - {field.name for field in dataclasses.fields(cls)}:
            raise OtherVersion(f"a schedule has no '{min(unknown)}'")
        for name in ("kill", "late", "signal", "jump"):
            told[name] = tuple(tuple(one) for one in told.get(name, ()))
        for name in ("then", "node", "disk", "lies"):
            told[name] = tuple(told[name]) if told.get(name) else None
        return cls(**told)


class Choices:
    """The draws of one schedule, numbered, so that a failing one can be shrunk to few surprises."""

    def __init__(self, schedule: Schedule, stream: int = 0) -> None:
        self._random = random.Random(f"{schedule.seed} {stream}")
        self._most = schedule.surprises
        self.drawn = 0

    def _is_calm(self) -> bool:
        self.drawn += 1
        return self._most is not None and self.drawn > self._most

    def delay(self, usual: float) -> float:
        """Return how long something takes: mostly about as long as usual, now and then far longer."""
        if self._is_calm():
            return usual
        long = self._random.random() < 0.05
        return usual * (self._random.uniform(2, 60) if long else self._random.uniform(0.1, 2))

    def chance(self, share: float) -> bool:
        """Return whether something happens that does so in this share of cases; in a calm world never."""
        return not self._is_calm() and self._random.random() < share

    def one_of(self, things: Sequence[Thing]) -> Thing:
        """Return one of some things; in a calm world the first."""
        return things[0] if self._is_calm() else self._random.choice(things)
