"""Many ranks in one process, of which one runs at a time: whose turn it is follows from a seed.

Each rank is a thread that runs while it holds the baton, and has a clock of its own. At each call that others
can notice the rank with the least clock goes on. So none sees what is later than itself, and the order of all
that happens is the schedule's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from mpifl.common import global_streams
from tests.simulated.schedule import Choices, Schedule

CALL, LATENCY, DETECTION = 2e-5, 1e-4, 0.5
"""Seconds that a call of MPI, a message's way and the news of a death usually take."""
MOST_CALLS, LONGEST = 400_000, 3000.0
"""Calls and seconds of a world after which it hangs; a sleep of 300 s is 15,000 looks."""
SPINS = 30.0
"""Seconds of the processor without a call after which a rank computes for ever."""
FIRST_PROCESS = 1 << 23
"""The number of rank 0's process: more than Linux gives to any, so that none of the machine is ever meant."""

LOOK, MOST_LOOKS = 0.5, 1200
"""Seconds of the machine between two looks at that, and looks after which a rank that does nothing hangs."""

_processor = time.process_time
_mine = threading.local()


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
        self.baton = threading.Semaphore(0)
        self.thread: threading.Thread | None = None
        self.state = "alive"
        self.error: BaseException | None = None
        self.said = ""
        self.end: Any = None
        self.learns: dict[int, float] = {}
        self.done: Counter[str] = Counter()
        self.since_death = 0
        self.rung = self.asleep = False
        self.alarm: float | None = None
        self.segments = 0
        self.held: list[Callable[[], None]] = []
        """Lets go of what the system takes from a process that ends."""
        self.transport: Any = None


class World:
    """The ranks of one schedule, from their start to the end of all.

    Attributes:
        faults: What broke a rule of MPI.
        hang: Why the world came to no end, "" if it did.
        aborted: Whether a rank ended all.
        halted: Whether all were killed at once.
        memory: Segments by process and number.
        trace: The latest calls, as (rank, what, clock).
    """

    def __init__(self, schedule: Schedule, ranks: int, *, stream: int = 0, halt: int | None = None) -> None:
        self.schedule, self.choices, self._halt = schedule, Choices(schedule, stream), halt
        self.ranks = [Rank(number) for number in range(ranks)]
        self.faults: list[str] = []
        self.hang = ""
        self.aborted = self.halted = False
        self.memory: dict[tuple[int, int], bytearray] = {}
        self.groups: list[Any] = []
        self.calls = 0
        self._beat = 0
        self._over, self._looked_at = threading.Event(), threading.Event()
        self._kill = dict.fromkeys(schedule.kill, True)
        self._late = {(who, what, nth): seconds for who, what, nth, seconds in schedule.late}

    # -- the scheduler

    def run(self, live: Callable[[Rank], Any]) -> None:
        """Have each rank live, and return when the world is over; its threads stay where they are."""
        self._streams = np.random.get_bit_generator(), random.getstate(), torch.get_rng_state()
        for rank in self.ranks:
            rank.thread = threading.Thread(target=self._life, args=(rank, live), daemon=True)
            rank.thread.start()
        self._hand_on()
        beat, since, looks = -1, _processor(), 0
        while not self._over.wait(LOOK):
            looks += 1
            if self._beat != beat:
                beat, since, looks = self._beat, _processor(), 0
            elif _processor() - since > SPINS or looks > MOST_LOOKS:
                self._hang("a rank computes for ever, or waits for what is not simulated")

    def close(self) -> int:
        """Let all threads unwind, now that all has been looked at; return how many do not.

        Not before: a rank that dies carries out no `finally`.
        """
        self._looked_at.set()
        if self.hang:
            for rank in self._living():
                assert rank.thread is not None
                assert rank.thread.ident is not None
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(rank.thread.ident), ctypes.py_object(Gone)
                )
        threads = [rank.thread for rank in self.ranks if rank.thread is not None]
        for thread in threads:
            thread.join(5)
        # ranks are threads here, and those that died put the process's streams back in no order
        numpys, pythons, torchs = self._streams
        np.random.set_bit_generator(numpys)
        random.setstate(pythons)
        torch.set_rng_state(torchs)
        global_streams._OURS.clear()
        return sum(thread.is_alive() for thread in threads)

    def _life(self, rank: Rank, live: Callable[[Rank], Any]) -> None:
        _mine.rank, _mine.world = rank, self
        rank.baton.acquire()
        try:
            if self._over.is_set():
                return
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
        self._hand_on()

    def _living(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.state == "alive"]

    def _next(self) -> Rank | None:
        return min(self._living(), key=lambda rank: (rank.clock, rank.number), default=None)

    def _hand_on(self) -> None:
        following = self._next()
        if following is None:
            self.finish()
        else:
            following.baton.release()

    def finish(self) -> None:
        """End the world: nobody runs any more."""
        self._over.set()
        for rank in self.ranks:
            rank.baton.release()

    @property
    def is_over(self) -> bool:
        """Whether nobody runs any more."""
        return self._over.is_set()

    def gone(self) -> NoReturn:
        """Never return to the rank that calls; its thread unwinds when all has been looked at."""
        self._looked_at.wait()
        raise Gone

    def turn(self, rank: Rank, seconds: float) -> None:
        """Let a rank's clock go on, and the others until theirs have come so far."""
        if self._over.is_set() or rank.state != "alive":
            self.gone()
        rank.clock += seconds
        self._beat += 1
        if rank.alarm is not None and rank.clock >= rank.alarm:
            self.die(rank)
        if self._beat > MOST_CALLS or rank.clock > LONGEST:
            self._hang(f"no end after {self._beat} calls and {rank.clock:.0f} s")
            self.gone()
        following = self._next()
        if following is not None and following is not rank:
            following.baton.release()
            rank.baton.acquire()
            if self._over.is_set() or rank.state != "alive":
                self.gone()

    def call(self, rank: Rank, what: str) -> None:
        """Note that a rank is about to call MPI; it may die of it, or be late."""
        if self._over.is_set() or rank.state != "alive":
            self.gone()
        rank.calls += 1
        rank.done[what] += 1
        self.calls += 1
        if self._halt is not None and self.calls >= self._halt:
            self.halted = True
            self.finish()
            self.gone()
        moments = ((rank.number, "", rank.calls), (rank.number, what, rank.done[what]))
        if any(moment in self._kill for moment in moments) or self._follows(rank):
            self.die(rank)
        late = sum(self._late.get(moment, 0.0) for moment in moments)
        self.turn(rank, late + self.choices.delay(CALL))

    def _follows(self, rank: Rank) -> bool:
        """Whether a rank dies so many calls after the first death."""
        then = self.schedule.then
        if then is None or then[0] != rank.number or not any(other.state == "dead" for other in self.ranks):
            return False
        rank.since_death += 1
        return rank.since_death == then[1]

    # -- deaths

    def die(self, rank: Rank) -> NoReturn:
        """End the rank that calls at once."""
        self.kill(rank)
        if not self._over.is_set():
            self._hand_on()
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
        rank.learns = {other.number: now + self.choices.delay(DETECTION) for other in self.ranks}

    def knows(self, rank: Rank, other: int) -> bool:
        """Whether a rank knows by now that another has died."""
        learns = self.ranks[other].learns
        return bool(learns) and learns[rank.number] <= rank.clock

    def of(self, process: int) -> Rank | None:
        """Return the rank of a process."""
        number = process - FIRST_PROCESS
        return self.ranks[number] if 0 <= number < len(self.ranks) else None

    # -- what went wrong

    def _hang(self, why: str) -> None:
        self.hang = f"{why}: {self.stacks()}"
        self.finish()

    def stacks(self) -> str:
        """Return where each living rank is."""
        frames, found = sys._current_frames(), []
        for rank in self._living():
            frame = frames.get(rank.thread.ident or 0) if rank.thread else None
            calls: list[str] = []
            while frame is not None and len(calls) < 16:
                code = frame.f_code
                if "/mpifl/" in code.co_filename:
                    calls.append(f"{os.path.basename(code.co_filename)}:{frame.f_lineno}:{code.co_name}")  # noqa: PTH119
                frame = frame.f_back
            found.append(f"rank {rank.number} at {rank.clock:.3f} s: {' < '.join(calls)}")
        return "\n  ".join(found)


def here() -> tuple[World, Rank]:
    """Return the world and the rank of the thread that calls."""
    return _mine.world, _mine.rank


def simulated() -> Rank | None:
    """Return the rank of the thread that calls, None if it is no rank's."""
    return getattr(_mine, "rank", None)


def numbers(ranks: Sequence[Rank]) -> list[int]:
    """Return the numbers of some ranks."""
    return [rank.number for rank in ranks]
