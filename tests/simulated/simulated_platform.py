"""The platform of a simulated rank, and what of Python and the system lies beside MPI.

Rooms above the wire measure seconds by `time`, take files' locks and have a thread write checkpoints: for a
simulated rank `time` tells its own clock, a lock falls when its rank dies, and a file is written when a drawn
time has come. All else is real: files, torch, the process that parses shards.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import torch

from mpifl.common.machine import signals
from mpifl.wire import Platform
from tests.simulated import disks
from tests.simulated.mpi import Library
from tests.simulated.world import CALL, LATENCY, Rank, World, here, simulated

LOST_RINGS = 0.02
"""Share of rings that wake nobody, as where a socket's buffer is full."""
TICK = 1e-7
"""Seconds that pass between two looks at a clock."""
WORK = 1e-5
"""Seconds that usually pass in work above the wire when it looks at the clock."""
WRITING = 2e-3
"""Seconds that a file of a checkpoint usually takes."""


BEGAN = 1.7e9
"""The time of the day when a world begins, in seconds since 1970."""


class Leaves(Exception):
    """A rank leaves, with an exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class SimulatedPlatform(Platform):
    """What one simulated rank stands on."""

    def __init__(self, world: World, rank: Rank) -> None:
        super().__init__()
        self._world, self._rank, self._library = world, rank, Library(world)
        self.segments: Any = SimulatedSegment
        self._awaited: list[Rank] = []

    @property
    def mpi(self) -> Any:
        return self._library

    @property
    def process(self) -> int:
        return self._rank.process

    def clock(self) -> float:
        self._rank.clock += TICK
        return self._rank.clock

    def sleep(self, seconds: float) -> None:
        self._world.turn(self._rank, seconds)

    def doorbell(self) -> Any:
        return SimulatedBell(self._world, self._rank)

    def kill(self, process: int) -> None:
        other = self._world.of(process)
        if other is self._rank:
            self._world.die(other)
        if other is not None and other.state == "alive":
            self._world.kill(other)

    def alarm(self, seconds: float) -> None:
        self._rank.alarm = self._rank.clock + seconds if seconds else None

    def wait_for_exit(self, processes: Sequence[int], seconds: float) -> None:
        self._farewell = seconds
        self._awaited = [rank for rank in map(self._world.of, processes) if rank is not None]

    def leave(self, code: int) -> NoReturn:
        """Leave as a real rank does: end those that hang, and those that are late."""
        if self._hanging and not self._world.schedule.survive:
            self._world.aborted = True
            self.end_launcher()
        self._end_hanging()
        until = self._rank.clock + self._farewell
        for other in self._awaited if self._world.schedule.survive else ():
            while other.state == "alive" and self._rank.clock < until:
                self.sleep(1e-2)
            self.kill(other.process)
        raise Leaves(code)

    def end_launcher(self) -> NoReturn:
        """End all ranks, this one included."""
        self._rank.state = "ended"
        self._world.finish()
        self._world.gone()


class SimulatedBell:
    """A rank's doorbell, whose ring may get lost."""

    def __init__(self, world: World, rank: Rank) -> None:
        self._world, self._rank = world, rank
        self.works = world.schedule.bell
        self.token = b"SIM!" + rank.number.to_bytes(8, "little")

    def notify(self, token: bytes) -> None:
        other = self._world.ranks[int.from_bytes(token[4:], "little")]
        if not self.works or other.state != "alive" or self._world.choices.chance(LOST_RINGS):
            return
        other.rung = True
        if other.asleep:
            other.clock = max(
                self._rank.clock, min(other.clock, self._rank.clock + self._world.choices.delay(CALL))
            )

    def wait(self, seconds: float) -> None:
        if self.works and not self._rank.rung:
            self._rank.asleep = True
            try:
                self._world.turn(self._rank, seconds)
            finally:
                self._rank.asleep = False
        elif not self.works:
            self._world.turn(self._rank, seconds)
        self._rank.rung = False


class SimulatedSegment:
    """Memory that other ranks may open as long as its owner lives; who has opened it keeps it."""

    def __init__(self, number: int, store: bytearray) -> None:
        self.number, self.map, self.nbytes = number, store, len(store)
        self.address = torch.frombuffer(store, dtype=torch.uint8).data_ptr()

    def pin(self) -> None:
        pass

    def unpin(self) -> None:
        pass

    @classmethod
    def made(cls, nbytes: int) -> SimulatedSegment:
        world, rank = here()
        rank.segments += 1
        world.memory[rank.process, rank.segments] = bytearray(nbytes)
        return cls(rank.segments, world.memory[rank.process, rank.segments])

    @classmethod
    def opened(cls, process: int, number: int) -> SimulatedSegment:
        world, rank = here()
        if not world.schedule.memory and process != rank.process:
            raise PermissionError("no rank may look into another's memory here")
        if (process, number) not in world.memory:
            raise FileNotFoundError("no such segment")
        return cls(number, world.memory[process, number])


class SimulatedThread:
    """A `ThreadPoolExecutor` of one thread that only writes: what it does is done when its time has come."""

    def __init__(self, *_: Any) -> None:
        pass

    def submit(self, act: Callable[..., Any], *arguments: Any) -> SimulatedFuture:
        return SimulatedFuture(lambda: act(*arguments))


class AtOnce(contextlib.nullcontext[Any]):
    """A `ThreadPoolExecutor` of one thread that only computes: what it does is done at once."""

    def __init__(self, *_: Any) -> None:
        super().__init__(self)

    def submit(self, act: Callable[..., Any], *arguments: Any) -> None:
        act(*arguments)


class SimulatedFuture:
    """What such a thread does; it never happens if its rank dies before."""

    def __init__(self, act: Callable[[], Any]) -> None:
        world, self._rank = here()
        self._world, self._act = world, act
        self._due = self._rank.clock + world.choices.delay(WRITING)
        self._result: Any = None
        self._error: Exception | None = None
        self._done = False

    def done(self) -> bool:
        if not self._done and self._rank.clock >= self._due:
            self._done = True
            try:
                self._result = self._act()
            except Exception as error:
                self._error = error
        return self._done

    def result(self) -> Any:
        while not self.done():
            self._world.turn(self._rank, max(self._due - self._rank.clock, LATENCY))
        if self._error is not None:
            raise self._error
        return self._result


def _flock(file: Any, how: int) -> None:
    """Lock a file as the system does, which lets go of the locks of a process that ends."""
    fcntl.flock(file, how)
    if (rank := simulated()) is not None:
        rank.held.append(lambda: fcntl.flock(file.fileno(), fcntl.LOCK_UN))


def _told(real: Callable[[], float], since: float) -> Callable[[], float]:
    def clock() -> float:
        rank = simulated()
        if rank is None:
            return real()
        rank.clock += here()[0].choices.delay(WORK)
        return since + rank.clock + (rank.jumped if since else 0.0)

    return clock


def _sleep(seconds: float, real: Callable[[float], None] = time.sleep) -> None:
    if simulated() is None:
        real(seconds)
    else:
        world, rank = here()
        world.turn(rank, seconds)


def _signalled(real: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: real() if (rank := simulated()) is None else rank.signalled


def _note(real: Callable[[], None]) -> Callable[[], None]:
    def note() -> None:
        if (rank := simulated()) is None:
            real()
        else:
            rank.signalled = True

    return note


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Have simulated ranks meet what is simulated beside MPI; others notice nothing."""
    locks = SimpleNamespace(**vars(fcntl))
    locks.flock = _flock
    with contextlib.ExitStack() as stack:
        for name, since in (("perf_counter", 0.0), ("monotonic", 0.0), ("time", BEGAN)):
            stack.enter_context(mock.patch.object(time, name, _told(getattr(time, name), since)))
        stack.enter_context(mock.patch.object(time, "sleep", _sleep))
        stack.enter_context(disks.installed())
        stack.enter_context(mock.patch.object(signals, "pending", _signalled(signals.pending)))
        stack.enter_context(mock.patch.object(signals, "note", _note(signals.note)))
        stack.enter_context(mock.patch("mpifl.run.folder.writer.ThreadPoolExecutor", SimulatedThread))
        stack.enter_context(mock.patch("mpifl.run.folder.serialization.ThreadPoolExecutor", AtOnce))
        stack.enter_context(mock.patch("mpifl.common.lock.fcntl", locks))
        stack.enter_context(mock.patch("mpifl.training.loop.library", return_value="simulated"))
        quiet = contextlib.nullcontext()
        stack.enter_context(mock.patch("mpifl.training.loop.LongSteps", return_value=quiet))
        for room in ("mpifl.training.beforehand.run_checks", "mpifl.wings.split.top_and_bottoms"):
            stack.enter_context(mock.patch(f"{room}.check_first_step"))  # no rank hears of it
        yield
