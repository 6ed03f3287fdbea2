"""The server's virtual clock: how long silos train by it, and what happens when, known before it happens."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mpifl.common import InputError, count_of, did_you_mean, rng
from mpifl.silo.steps import LocalTraining, refuse_idle, steps_of

Speed = Annotated[float, Field(ge=1e-9, le=1e9)]
FINEST = 10**18
"""The largest denominator of a moment. Sums over silos at speeds of 16 digits would else have thousands."""

MOST_NAMED = 8
"""The most silos that a refusal names."""


class ClockSettings(BaseModel):
    """The `[clock]` table of a job: how fast silos train by a clock that is the server's own."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    speeds: dict[str, Speed] | Literal["uniform", "log-uniform"] = "log-uniform"
    """Steps a second of each silo, by its name; or how they are drawn between slowest and fastest."""
    slowest: Speed = 1.0
    """The lowest speed that is drawn."""
    fastest: Speed = 10.0
    """The highest speed that is drawn."""
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Each training takes a time of its own, drawn from 1 - jitter to 1 + jitter times what steps take."""
    seed: Annotated[int, Field(ge=0)] | None = None
    """What speeds and jitter are derived from; by default the job's seed."""
    deadline: Annotated[float, Field(gt=0, le=1e15)] | None = None
    """Virtual seconds of a round: silos that would take longer are left out of it; only for synchronous
    algorithms."""

    @model_validator(mode="after")
    def _in_order(self) -> ClockSettings:
        if self.slowest > self.fastest:
            raise ValueError(f"slowest = {self.slowest:g} is above fastest = {self.fastest:g}; exchange them")
        return self

    @model_validator(mode="after")
    def _drawn_or_given(self) -> ClockSettings:
        if isinstance(self.speeds, dict):
            why = "is of speeds that are drawn, and speeds names each silo's; leave one of them out"
            refuse_idle(self, ["slowest", "fastest"], why)
        return self

    def speeds_of(self, names: Sequence[str], seed: int) -> list[float]:
        """Return the steps a second of silos of these names.

        Raises:
            InputError: a silo has no speed, or a speed no silo.
        """
        if isinstance(self.speeds, dict):
            if strange := [name for name in self.speeds if name not in names]:
                hint, more = did_you_mean(strange[0], names), len(names) - MOST_NAMED
                known = ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
                what = f"no silo is called '{strange[0]}'; {hint}the silos are {known}"
                raise InputError(f"[clock] speeds: {what}")
            if missing := [name for name in names if name not in self.speeds]:
                several = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                what = f"no speed is given for silo '{missing[0]}'{several}"
                raise InputError(f"[clock] speeds: {what}; give each silo one, or use 'uniform'")
            return [self.speeds[name] for name in names]
        draws = rng.numpy_stream(seed, "speeds").random(len(names))
        if self.speeds == "uniform":
            return [float(self.slowest + (self.fastest - self.slowest) * u) for u in draws]
        return [float(self.slowest * (self.fastest / self.slowest) ** u) for u in draws]

    def took(self, steps: int, speed: float, seed: int, silo: int, nth: int) -> Fraction:
        """Return the seconds of a silo's nth training, of so many steps at so many a second.

        They are exact: ten steps at 10 a second take the second that one step at 1 a second takes.
        """
        seconds = steps / Fraction(str(speed))
        if not self.jitter:
            return seconds
        drawn = float(rng.numpy_stream(seed, "jitter", silo, nth).random())
        return seconds * Fraction(1.0 + self.jitter * (2.0 * drawn - 1.0))


class Pace:
    """How long silos train by the clock, which follows from the job alone.

    Args:
        clock: The `[clock]` table.
        local: The `[local]` table.
        silos: The name and the number of training examples of each silo.
        seed: The job's seed.

    Raises:
        InputError: a silo has no speed.
    """

    def __init__(
        self, clock: ClockSettings, local: LocalTraining, silos: Sequence[tuple[str, int]], seed: int
    ) -> None:
        self._clock, self._local, self._job_seed = clock, local, seed
        self._sizes = [examples for _, examples in silos]
        self.seed = seed if clock.seed is None else clock.seed
        self._speeds = clock.speeds_of([name for name, _ in silos], self.seed)

    def steps(self, silo: int, round: int, turn: int = 0) -> int:
        """Return the steps of a silo's training in a round, the turn-th of that round."""
        local = self._local.at_round(round)
        if local.straggler_chance or local.epochs_by_silo:
            lot = rng.torch_stream(self._job_seed, "stragglers", *rng.turn(silo, round, turn))
            local = local.of_silo(silo, lot)
        return steps_of(local, self._sizes[silo])

    def seconds(self, silo: int, nth: int, steps: int) -> Fraction:
        """Return the seconds of a silo's nth training, of so many steps."""
        return self._clock.took(steps, self._speeds[silo], self.seed, silo, nth)


class RoundClock:
    """The clock of rounds that wait for their silos: a round takes as long as the slowest that takes part.

    Args:
        pace: How long silos train.
        gradients: Returns how many gradients of a batch a silo takes in a round of so many steps.
        deadline: Virtual seconds of a round; silos that would take longer are left out (as in FedCS, Nishio &
            Yonetani 2019).
    """

    def __init__(self, pace: Pace, gradients: Callable[[int], int], deadline: float | None) -> None:
        self._pace, self._gradients = pace, gradients
        self._deadline = None if deadline is None else Fraction(str(deadline))

    def seconds(self, silo: int, round: int) -> Fraction:
        """Return how long a silo takes in a round."""
        return self._pace.seconds(silo, round, self._gradients(self._pace.steps(silo, round)))

    def in_time(self, silos: Sequence[int], round: int) -> list[int]:
        """Return those of the silos that would be done by the deadline."""
        return [
            silo for silo in silos if self._deadline is None or self.seconds(silo, round) <= self._deadline
        ]

    def why_nobody(self, silos: Sequence[int], round: int) -> str:
        """Return that none of a round's silos would be done by the deadline; "" if one is."""
        if self._deadline is None or not silos or any(self.in_time([silo], round) for silo in silos):
            return ""
        first = float(min(self.seconds(silo, round) for silo in silos))
        what = f"none of {count_of(len(silos), 'silo')} of round {round + 1} would be done by then"
        return f"[clock] deadline = {float(self._deadline):g}: {what}; give at least {first:.6g}"


@dataclass
class Happening:
    """What happens in one round of an asynchronous training.

    Attributes:
        seconds: What the clock says at its end.
        events: For each silo, in order: None where it begins to train from the round's model; where it hands
            over what it has trained, the round in which it began that.
        staleness: Of each update that is handed over, how many rounds ago it was begun.
        steps: How many steps a training takes, for each event of a silo; empty where `[local]` says it.
    """

    seconds: float = 0.0
    events: dict[int, list[int | None]] = field(default_factory=dict)
    staleness: list[int] = field(default_factory=list)
    steps: dict[int, list[int]] = field(default_factory=dict)


class Timetable(ABC):
    """All rounds of an asynchronous training, one after another; they follow from the job alone."""

    def __init__(self) -> None:
        self._rounds: list[Happening] = []

    def round(self, round: int) -> Happening:
        """Return what happens in a round, counted from 0."""
        while len(self._rounds) <= round:
            self._rounds.append(self._next(len(self._rounds)))
        return self._rounds[round]

    @abstractmethod
    def _next(self, round: int) -> Happening:
        """Return what happens in the round after the last one."""


class Schedule(Timetable):
    """Rounds that end with a number of updates, and silos that never wait.

    A round ends when so many updates are handed over as the server waits for. Whoever hands one over, or a
    silo that is drawn in its place, begins anew from the model of that moment. What happens at the same time
    is in the order of the silos' numbers.

    Args:
        silos: How many there are.
        seconds: (silo, round, which of the silo's trainings in the round, which of all its trainings) -> how
            long that training takes.
        waits: How many updates a round waits for.
        concurrency: How many silos train at any time.
        seed: What it is derived from who is drawn.
    """

    def __init__(
        self,
        silos: int,
        seconds: Callable[[int, int, int, int], Fraction],
        waits: int,
        concurrency: int,
        seed: int,
    ) -> None:
        super().__init__()
        self._silos, self._seconds, self._waits, self._seed = silos, seconds, waits, seed
        self._training: list[tuple[Fraction, int, int]] = []
        self._begun = [0] * silos
        self._now, self._drawn = Fraction(0), 0
        stream = rng.numpy_stream(seed, "first silos")
        first = range(silos) if concurrency >= silos else stream.choice(silos, concurrency, replace=False)
        self._waiting = sorted(int(silo) for silo in first)

    def _next(self, round: int) -> Happening:
        found = Happening()
        for silo in self._waiting:
            self._begin(found, silo, round)
        for nth in range(1, self._waits + 1):
            self._now, silo, begun = heapq.heappop(self._training)
            found.events.setdefault(silo, []).append(begun)
            found.staleness.append(round - begun)
            follower = self._follower(silo)
            self._waiting = [follower]
            if nth < self._waits:
                self._begin(found, follower, round)
        found.seconds = float(self._now)
        return found

    def _begin(self, found: Happening, silo: int, round: int) -> None:
        events = found.events.setdefault(silo, [])
        took = self._seconds(silo, round, events.count(None), self._begun[silo])
        heapq.heappush(self._training, ((self._now + took).limit_denominator(FINEST), silo, round))
        self._begun[silo] += 1
        events.append(None)

    def _follower(self, silo: int) -> int:
        """Return who begins when a silo is done: itself, if all train at any time."""
        busy = {one for _, one, _ in self._training}
        idle = [one for one in range(self._silos) if one not in busy]
        self._drawn += 1
        if len(idle) == 1:
            return silo
        return idle[int(rng.numpy_stream(self._seed, "next silo", self._drawn).integers(len(idle)))]
