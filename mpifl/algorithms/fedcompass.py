"""Silos take as many steps as let them arrive in groups, and the server moves by the updates of a group."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from mpifl.algorithms.arrival_groups import ArrivalGroups
from mpifl.algorithms.asynchronous import Aging
from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.server import Server
from mpifl.algorithms.virtual_clock import Pace, Timetable
from mpifl.silo import Silo
from mpifl.silo.steps import LocalRun
from mpifl.wire import Mean, Update


class FedCompass(Aging):
    """FedCompass (Li et al. 2024): w moves by the sum of p_k alpha s(tau) delta_k of a
    group.

    p_k is silo k's share of all silos' weights, tau is how often w has moved since the update was begun, and
    s(tau) is as in FedAsync. `arrival_groups.py` says who trains how many steps, and arrives when.
    """

    ignores: ClassVar[frozenset[str]] = frozenset(
        f"local.{key}" for key in ("epochs", "epochs_decay", "epochs_by_silo", "steps", "straggler_chance")
    )

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.9
    """The share of an update, before staleness."""
    min_local_steps: PositiveInt = 20
    """Q_min: the fewest steps of a training."""
    max_local_steps: PositiveInt = 100
    """Q_max: the most steps of a training, and those of a silo's first."""
    latest_time_factor: Annotated[float, Field(ge=1, le=1000)] = 1.5
    """lambda: a group waits this many times as long as its first member should take."""
    speed_momentum: Annotated[float, Field(gt=0, le=1)] = 0.9
    """The share of a silo's last training in what the server knows of its speed."""

    @model_validator(mode="after")
    def _in_order(self) -> FedCompass:
        least, most = self.min_local_steps, self.max_local_steps
        if least > most:
            raise ValueError(f"min_local_steps = {least} is above max_local_steps = {most}; exchange them")
        if self.local.schedule_rounds > 1:
            what = "counts steps, of which each training has a number of its own"
            raise ValueError(f"[local] schedule_rounds {what}; leave it out")
        return self

    def timetable(self, pace: Pace, silos: int, seed: int) -> Timetable:
        """Return the rounds, each of a group's updates and of late ones."""
        return ArrivalGroups(
            pace,
            silos,
            least=self.min_local_steps,
            most=self.max_local_steps,
            factor=self.latest_time_factor,
            momentum=self.speed_momentum,
        )

    def kept(self, run: LocalRun) -> Tensor:
        """Return how far the silo went."""
        return run.delta

    def weighed(self, kept: Tensor, w: Tensor, age: int) -> Tensor:
        """Return alpha s(tau) delta."""
        return kept * (self.alpha * self.share(age))

    def take_part(self, silo: Silo, w: Tensor, events: str, steps: str = "{}") -> Update:
        """Begin to train, or hand over; who hands over tells its weight."""
        update = super().take_part(silo, w, events, steps)
        if update.vectors:
            update.scalars["weight"] = silo.weight
        return update

    def step(self, mean: Mean, cohort: Cohort) -> Tensor:
        """Return the sum over the updates, by shares of all silos, shape [P]."""
        return mean["delta"] * (math.fsum(mean.each("weight")) / cohort.weight)

    def round(self, server: Server, cohort: Cohort) -> dict[str, Any]:
        """Have silos begin and hand over as the groups say, and move w."""
        return {name: of for name, of in super().round(server, cohort).items() if name != "weight"}
