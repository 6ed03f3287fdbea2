"""Many ranks in one process, of which one runs at a time: whose turn it is follows from a seed.

Each rank is a greenlet, a stack that goes on where it was left, and has a clock of its own. At each call that
others can notice the rank with the least clock goes on. So none sees what is later than itself, and the order
of all that happens is the schedule's.
"""

from __future__ import annotations

import _signal
import contextlib
import functools
import gc
import os
import random
import signal
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

import numpy as np
import torch
from greenlet import getcurrent, greenlet

from mpifl.common import global_streams
from tests.simulated.schedule import Choices, Schedule

CALL, LATENCY, DETECTION = 2e-5, 1e-4, 0.5
"""Seconds that a call of MPI, a message's way and the news of a death usually take."""
MOST_CALLS, LONGEST = 400_000, 3000.0
"""Calls and seconds of a world after which it hangs; a sleep of 300 s is 15,000 looks."""
SPINS = 30.0
"""Seconds of the processor, at least, without a call after which a rank computes for ever."""
FIRST_PROCESS = 1 << 23
"""The number of rank 0's process: more than Linux gives to any, so that none of the machine is ever meant."""


class Gone(BaseException):
    """The world of this thread is over; no `except Exception` may hold it."""


class Rank:
    """One rank of a world.

    Attributes:
        number: As the world begins.
        clock: Seconds.
        calls: How many calls it has made.
        state: "alive", "dead" or "ended".
        error: What it ended by.
        said: The line or traceback that it ended with.
        learns: When each other rank learns that this one is dead.
    """

    def __init__(self, number: int) -> None:
        self.number, self.clock, self.calls = number, 0.0, 0
        self.process = FIRST_PROCESS + number
        self.life: Life | None = None
        self.state = "alive"
        self.error: BaseException | None = None
        self.said = ""
        self.end: Any = None
        self.learns: dict[int, float] = {}
        self.done: Counter[str] = Counter()
        self.since_death = 0
        self.rung = self.asleep = self.signalled = False
        self.jumped, self.sent = 0.0, 0
        self.before: dict[int, Any] = {}
        self.alarm: float | None = None
        self.segments = 0
        self.held: list[Callable[[], None]] = []
        """Lets go of what the system takes from a process that ends."""
        self.transport: Any = None


class Life(greenlet):
    """The stack of a rank."""

    def __init__(self, world: World, rank: Rank, live: Callable[[], None]) -> None:
        super().__init__(live)
        self.world, self.rank = world, rank


class World:
    """The ranks of one schedule, from their start to the end of all.

    Attributes:
        faults: What broke a rule of MPI.
        hang: Why the world came to no end, "" if it did.
        aborted: Whether a rank ended all.
        halted: Whether all were killed at once.
        memory: Segments by process and number.
        calls: How many calls all ranks have made.
        disk: Where ranks write.
    """

    def __init__(self, schedule: Schedule, ranks: int, *, stream: int = 0, halt: int | None = None) -> None:
        self.choices = Choices(schedule, stream)
        self.ranks = [Rank(number) for number in range(ranks)]
        self.faults: list[str] = []
        self.hang = ""
        self.aborted = self.halted = self.is_over = self._unwinds = False
        self.memory: dict[tuple[int, int], bytearray] = {}
        self.groups: list[Any] = []
        self.calls = 0
        self.disk: Any = None
        self._beat, self._seen = 0, -1
        self._hub = getcurrent()
        self.schedule, self._halt = schedule, halt
        self._due: dict[Any, list[Callable[[Rank], None]]] = defaultdict(list)
        for moment in schedule.kill:
            self._due[moment].append(self.die)
        for moment in schedule.signal:
            self._due[moment].append(lambda rank: setattr(rank, "signalled", True))
        for *at, seconds in schedule.jump:
            self._due[tuple(at)].append(lambda rank, seconds=seconds: setattr(rank, "jumped", seconds))  # type: ignore[misc]
        for *at, seconds in schedule.late:
            self._due[tuple(at)].append(lambda rank, seconds=seconds: self.turn(rank, seconds))  # type: ignore[misc]

    # -- the scheduler

    def run(self, live: Callable[[Rank], Any]) -> None:
        """Have each rank live, and return when the world is over; its stacks stay as they are."""
        self._streams = np.random.get_bit_generator(), random.getstate(), torch.get_rng_state()
        for rank in self.ranks:
            rank.life = Life(self, rank, functools.partial(self._life, rank, live))
        with self._watched():
            while not self.is_over and (following := self._next()):
                self._switch(following)
        self.finish()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """See to it that no rank computes for ever.

        What the collector of garbage ends must not depend on what else the process does, so it waits.
        """
        gc.disable()
        _signal.signal(signal.SIGVTALRM, self._look)
        signal.setitimer(signal.ITIMER_VIRTUAL, SPINS, SPINS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            gc.enable()

    def _look(self, _: int, frame: FrameType | None) -> None:
        """Look whether there was a call since the last look."""
        if self._beat == self._seen and not self.is_over:
            self._hang("a rank computes for ever", frame)
            raise Gone
        self._seen = self._beat

    def close(self) -> int:
        """Unwind all stacks, now that all has been looked at; return how many do not.

        Not before: a rank that dies carries out no `finally`.
        """
        self._unwinds = True
        lives = [rank.life for rank in self.ranks if rank.life is not None]
        for life in filter(None, lives):  # true of those that have begun and are not done
            life.throw(Gone)
        # those that died put the process's streams back in no order
        numpys, pythons, torchs = self._streams
        np.random.set_bit_generator(numpys)
        random.setstate(pythons)
        torch.set_rng_state(torchs)
        torch.set_grad_enabled(True)
        global_streams._OURS.clear()
        return sum(map(bool, lives))

    def _life(self, rank: Rank, live: Callable[[Rank], Any]) -> None:
        torch.set_grad_enabled(True)
        try:
            rank.end = live(rank)
        except Gone:
            return
        except BaseException as error:  # a fault of the simulation itself, or of what ends a rank
            rank.error, rank.said = error, traceback.format_exc()
            self.aborted = True
            self.finish()
            return
        rank.state = "ended"
        self._let_go(rank)
        if self.schedule.survive:  # a rank that has left without MPI_Finalize looks dead
            self._spread_news(rank)

    def _living(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.state == "alive"]

    def _next(self) -> Rank | None:
        """Return the rank with the least clock that lives, of several the first."""
        first = None
        for rank in self.ranks:
            if rank.state == "alive" and (first is None or rank.clock < first.clock):
                first = rank
        return first

    def _switch(self, rank: Rank | None) -> None:
        """Continue with a rank, or with who runs the world; return when this one continues.

        Torch keeps per thread whether it notes gradients, and all ranks are of one.
        """
        grad = torch.is_grad_enabled()
        (self._hub if rank is None else rank.life).switch()  # type: ignore[union-attr]
        torch.set_grad_enabled(grad)

    def finish(self) -> None:
        """End the world: nobody runs any more."""
        self.is_over = True

    def gone(self) -> NoReturn:
        """Never return to the rank that calls; its stack unwinds when all has been looked at."""
        if not self._unwinds:
            self._switch(None)
        raise Gone

    def turn(self, rank: Rank, seconds: float) -> None:
        """Let a rank's clock go on, and the others until theirs have come so far."""
        if self.is_over or rank.state != "alive":
            self.gone()
        rank.clock += seconds
        self._beat += 1
        if rank.alarm is not None and rank.clock >= rank.alarm:
            self.die(rank)
        if self._beat > MOST_CALLS or rank.clock > LONGEST:
            self._hang(f"no end after {self._beat} calls and {rank.clock:.0f} s", sys._getframe())
            self.gone()
        following = self._next()
        if following is not rank:
            self._switch(following)
            if self.is_over or rank.state != "alive":
                self.gone()

    def call(self, rank: Rank, what: str) -> None:
        """Note that a rank is about to call MPI; it may die of it, or be late."""
        if self.is_over or rank.state != "alive":
            self.gone()
        rank.calls += 1
        rank.done[what] += 1
        self.calls += 1
        if self._halt is not None and self.calls >= self._halt:
            self.halted = True
            self.finish()
            self.gone()
        if self._due:
            for moment in ((rank.number, "", rank.calls), (rank.number, what, rank.done[what])):
                for act in self._due.get(moment, ()):
                    act(rank)
        if self.schedule.then and self._follows(rank):
            self.die(rank)
        if self.schedule.node and self.calls == self.schedule.node[1]:
            self._fail_node(self.schedule.node[0])
        self.turn(rank, self.choices.delay(CALL))

    def _follows(self, rank: Rank) -> bool:
        """Whether a rank dies so many calls after the first death."""
        then = self.schedule.then
        if then is None or then[0] != rank.number or not any(other.state == "dead" for other in self.ranks):
            return False
        rank.since_death += 1
        return rank.since_death == then[1]

    # -- deaths

    def node_of(self, number: int) -> int:
        """Return the node of a rank by its number at the start."""
        return number // self.schedule.nodes if self.schedule.nodes else 0

    def _fail_node(self, node: int) -> None:
        for rank in self._living():
            if self.node_of(rank.number) == node:
                self.kill(rank)

    def die(self, rank: Rank) -> NoReturn:
        """End the rank that calls at once."""
        self.kill(rank)
        self.gone()

    def kill(self, rank: Rank) -> None:
        """End a rank at once: what the system takes from a process that ends is gone."""
        rank.state = "dead"
        for key in [key for key in self.memory if key[0] == rank.process]:
            del self.memory[key]
        self._let_go(rank)
        self._spread_news(rank)
        for group in self.groups:
            group.lose(rank.number)
        if not self.schedule.survive:  # the launcher ends the others
            self.halted = True
            self.finish()

    def _let_go(self, rank: Rank) -> None:
        for let_go in rank.held:
            with contextlib.suppress(OSError, ValueError):
                let_go()
        rank.held.clear()

    def _spread_news(self, rank: Rank) -> None:
        now = min((other.clock for other in self._living()), default=rank.clock)
        # within the limit of a transfer, as by the defaults; else it would be a late rank to others
        most = 0.8 * self.schedule.timeout
        rank.learns = {one.number: now + min(self.choices.delay(DETECTION), most) for one in self.ranks}

    def knows(self, rank: Rank, other: int) -> bool:
        """Whether a rank knows by now that another has died."""
        learns = self.ranks[other].learns
        return bool(learns) and learns[rank.number] <= rank.clock

    def of(self, process: int) -> Rank | None:
        """Return the rank of a process."""
        number = process - FIRST_PROCESS
        return self.ranks[number] if 0 <= number < len(self.ranks) else None

    # -- what went wrong

    def _hang(self, why: str, frame: FrameType | None) -> None:
        self.hang = f"{why}: {self.stacks(frame)}"
        self.finish()

    def stacks(self, running: FrameType | None) -> str:
        """Return where each living rank is; `running` is the frame of the one that runs."""
        found, current = [], getcurrent()
        for rank in self._living():
            frame = running if rank.life is current else rank.life and rank.life.gr_frame
            calls: list[str] = []
            while frame is not None and len(calls) < 16:
                code = frame.f_code
                if "/mpifl/" in code.co_filename:
                    calls.append(f"{os.path.basename(code.co_filename)}:{frame.f_lineno}:{code.co_name}")  # noqa: PTH119
                frame = frame.f_back
            found.append(f"rank {rank.number} at {rank.clock:.3f} s: {' < '.join(calls)}")
        return "\n  ".join(found)


def here() -> tuple[World, Rank]:
    """Return the world and the rank that calls."""
    life: Any = getcurrent()
    return life.world, life.rank


def simulated() -> Rank | None:
    """Return the rank that calls, None if it is none; threads that a rank starts are none."""
    return getattr(getcurrent(), "rank", None)
