"""Groups of silos that arrive together by the virtual clock, since each takes as many steps as fit."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from fractions import Fraction

from mpifl.algorithms.virtual_clock import FINEST, Happening, Pace, Timetable


@dataclass(order=True)
class TimedTraining:
    """A training: when and by whom it is done; the round and the moment in which it began, and its steps."""

    done: Fraction
    silo: int
    begun: int
    start: Fraction
    steps: int


@dataclass(eq=False)
class ArrivalGroup:
    """Silos that are to arrive together.

    Attributes:
        expected: When they are expected.
        latest: Until when the group waits for them.
        coming: Who is still training.
        come: The trainings of those who have arrived in time.
        closed: Whether the server has taken the group's updates.
    """

    expected: Fraction
    latest: Fraction
    coming: set[int]
    come: list[TimedTraining] = field(default_factory=list)
    closed: bool = False


class ArrivalGroups(Timetable):
    """The Compass scheduler (Li et al. 2024), as its authors' APPFL has it.

    A silo's first training has `most` steps. Its update is a step of the server, and tells the silo's speed.
    From then on a silo joins the group for whose arrival its number of steps is the largest from `least` to
    `most`. If none fits, it founds a group, which arrives with the fastest of another on its next round. A
    step of the server takes the updates of a group when all have arrived, or at its latest time. A silo that
    is late leaves its update for the next step of the server, and joins a group at once.

    Args:
        pace: How long silos train.
        silos: How many there are.
        least: Q_min.
        most: Q_max.
        factor: lambda: a group waits so many times as long as its first member should take.
        momentum: The share of a silo's last training in what is known of its speed.
    """

    def __init__(
        self, pace: Pace, silos: int, *, least: int, most: int, factor: float, momentum: float
    ) -> None:
        super().__init__()
        self._pace, self._least, self._most = pace, least, most
        self._factor, self._momentum = Fraction(str(factor)), Fraction(str(momentum))
        self._now = Fraction(0)
        self._waiting = dict.fromkeys(range(silos), most)
        """Who begins in the next round, and its steps."""
        self._training: list[TimedTraining] = []
        self._trained = [0] * silos
        self._speed: dict[int, Fraction] = {}
        """Seconds a step, as far as arrivals have told."""
        self._groups: list[ArrivalGroup] = []
        self._group_of: dict[int, ArrivalGroup] = {}

    def _next(self, round: int) -> Happening:
        found = Happening()
        for silo, steps in self._waiting.items():
            self._begin(found, silo, steps, round)
        self._waiting = {}
        while not self._waiting:  # else no silo would train, and each ends in finite time
            done = self._closed() or self._arrived(found, round)
            for training in done:
                self._hand_over(found, training, round)
            silos = sorted((training.silo for training in done), key=lambda silo: (self._speed[silo], silo))
            self._waiting = {silo: self._steps(silo) for silo in silos}
        found.seconds = float(self._now)
        return found

    def _closed(self) -> list[TimedTraining]:
        """Close the group whose latest time comes before any arrival; return the updates that it has."""
        waiting = [group for group in self._groups if group.come and not group.closed]
        first = min(waiting, key=lambda group: group.latest, default=None)
        if first is None or first.latest >= self._training[0].done:
            return []
        self._now, first.closed = first.latest, True
        return first.come

    def _arrived(self, found: Happening, round: int) -> list[TimedTraining]:
        """Let the next silo arrive; return the updates of which the server now makes a step, if it does."""
        arrived = heapq.heappop(self._training)
        silo, self._now = arrived.silo, arrived.done
        took = (arrived.done - arrived.start) / arrived.steps
        known = self._speed.get(silo, took)
        speed = known + self._momentum * (took - known)
        self._speed[silo] = speed.limit_denominator(FINEST)
        group = self._group_of.get(silo)
        if group is None:
            return [arrived]
        group.coming.remove(silo)
        if group.closed or self._now > group.latest:
            self._hand_over(found, arrived, round)
            self._begin(found, silo, self._steps(silo), round)
            return []
        group.come.append(arrived)
        group.closed = not group.coming
        return group.come if group.closed else []

    def _hand_over(self, found: Happening, training: TimedTraining, round: int) -> None:
        found.events.setdefault(training.silo, []).append(training.begun)
        found.steps.setdefault(training.silo, []).append(training.steps)
        found.staleness.append(round - training.begun)

    def _begin(self, found: Happening, silo: int, steps: int, round: int) -> None:
        found.events.setdefault(silo, []).append(None)
        found.steps.setdefault(silo, []).append(steps)
        took = self._pace.seconds(silo, self._trained[silo], steps)
        done = (self._now + took).limit_denominator(FINEST)
        heapq.heappush(self._training, TimedTraining(done, silo, round, self._now, steps))
        self._trained[silo] += 1

    def _steps(self, silo: int) -> int:
        """Have a silo join a group, or found one; return the steps of its next training."""
        self._groups = [group for group in self._groups if not group.closed and self._now <= group.latest]
        fitting = [(self._until(silo, group.expected), nth) for nth, group in enumerate(self._groups)]
        steps, nth = max((one for one in fitting if self._least <= one[0] <= self._most), default=(0, -1))
        if nth < 0:
            steps = self._steps_alone(silo)
            takes = steps * self._speed[silo]
            self._groups.append(ArrivalGroup(self._now + takes, self._now + takes * self._factor, set()))
        self._groups[nth].coming.add(silo)
        self._group_of[silo] = self._groups[nth]
        return steps

    def _steps_alone(self, silo: int) -> int:
        """Return the steps with which a new group arrives when the fastest of another does the next time."""
        found = []
        for group in self._groups:
            members = [*group.coming, *(training.silo for training in group.come)]
            fastest = min(self._speed[member] for member in members)
            found.append(self._until(silo, group.latest + fastest * self._most))
        return max(max((steps for steps in found if steps <= self._most), default=self._most), self._least)

    def _until(self, silo: int, moment: Fraction) -> int:
        """Return how many whole steps a silo takes until a moment."""
        return math.floor((moment - self._now) / self._speed[silo])
