"""The server's virtual clock: how long silos train by it, and what happens when, known before it happens."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mpifl.common import InputError, did_you_mean, rng

Speed = Annotated[float, Field(ge=1e-9, le=1e9)]
FINEST = 10**18
"""The largest denominator of a moment. Sums over silos at speeds of 16 digits would else have thousands."""


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

    @model_validator(mode="after")
    def _in_order(self) -> ClockSettings:
        if self.slowest > self.fastest:
            raise ValueError(f"slowest = {self.slowest:g} is above fastest = {self.fastest:g}; exchange them")
        return self

    def speeds_of(self, names: Sequence[str], seed: int) -> list[float]:
        """Return the steps a second of silos of these names.

        Raises:
            InputError: a silo has no speed, or a speed no silo.
        """
        if isinstance(self.speeds, dict):
            if missing := [name for name in names if name not in self.speeds]:
                several = f" and of {len(missing) - 1} more" if len(missing) > 1 else ""
                what = f"there is none of silo '{missing[0]}'{several}"
                raise InputError(f"[clock] speeds: {what}; give each silo one, or use 'uniform'")
            if strange := [name for name in self.speeds if name not in names]:
                hint = did_you_mean(strange[0], names)
                raise InputError(f"[clock] speeds: no silo is called '{strange[0]}'; {hint}leave it out")
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


@dataclass
class Happening:
    """What happens in one round of an asynchronous training.

    Attributes:
        seconds: What the clock says at its end.
        events: For each silo, in order: None where it begins to train from the round's model; where it hands
            over what it has trained, the round in which it began that.
        staleness: Of each update that is handed over, how many rounds ago it was begun.
    """

    seconds: float = 0.0
    events: dict[int, list[int | None]] = field(default_factory=dict)
    staleness: list[int] = field(default_factory=list)


class Schedule:
    """All rounds of an asynchronous training, one after another; they follow from the job alone.

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
        self._silos, self._seconds, self._waits, self._seed = silos, seconds, waits, seed
        self._rounds: list[Happening] = []
        self._training: list[tuple[Fraction, int, int]] = []
        self._begun = [0] * silos
        self._now, self._drawn = Fraction(0), 0
        stream = rng.numpy_stream(seed, "first silos")
        first = range(silos) if concurrency >= silos else stream.choice(silos, concurrency, replace=False)
        self._waiting = sorted(int(silo) for silo in first)

    def round(self, round: int) -> Happening:
        """Return what happens in a round, counted from 0."""
        while len(self._rounds) <= round:
            self._rounds.append(self._next())
        return self._rounds[round]

    def _next(self) -> Happening:
        found, round = Happening(), len(self._rounds)
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
