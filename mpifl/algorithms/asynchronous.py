"""Asynchronous rounds on the server's virtual clock: nobody waits for slow silos."""

from __future__ import annotations

import json
from abc import abstractmethod
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt, PrivateAttr, model_validator
from torch import Tensor, nn

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.algorithms.virtual_clock import Pace, Schedule, Timetable
from mpifl.common import InputError, count_of
from mpifl.data.shards import AnySpec, FederationSpec
from mpifl.silo import Silo
from mpifl.silo.steps import LocalRun, Proximal, refuse_idle
from mpifl.wire import Mean, Update

NonNegative = Annotated[float, Field(ge=0)]


class Asynchronous(FedAvg):
    """What silos train that hand over their updates when they are done, each at its own time.

    A round is one step of the server. It asks silos that begin now to train from w and keep the update, and
    silos that are done now to hand over what they kept. Who does what follows from the job alone. A silo that
    has lost what it kept, when its rank died, trains from today's w and hands that over.
    """

    timed: ClassVar[bool] = True
    varied: ClassVar[bool] = True
    ways: ClassVar[tuple[str, ...]] = ("asynchronous",)
    needs_mean: ClassVar[str] = "silos hand over updates of models of unequal age"
    unlike_fedavg: ClassVar[str] = "hands over what it made of an older model"
    not_private = "hands over in one round what it trained in another; use fedavg"
    not_noised = "silos hand over in one round what they trained in another"
    not_masked = "few silos hand over at a time, and a sum over few hides little"
    not_clipped = "a silo may hand over several at a time, each with a weight of its own"

    _silos: tuple[tuple[str, int], ...] = PrivateAttr(default=())
    _known: dict[int, Timetable] = PrivateAttr(default_factory=dict)
    """What follows from all this, by the seed."""

    def for_federation(self, spec: AnySpec) -> Asynchronous:
        """Return the algorithm as it knows the silos.

        Raises:
            InputError: a silo has no speed.
        """
        made = super().for_federation(spec)
        assert isinstance(made, Asynchronous)
        if isinstance(spec, FederationSpec) and self.clock is not None:
            made._known = {}
            made._silos = tuple((entry.name, entry.examples["train"]) for entry in spec.silos)
            self.clock.speeds_of([name for name, _ in made._silos], 0)
        return made

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """See that the model has no running statistics, which are told when they are learned.

        Raises:
            InputError: it has.
        """
        if any(buffer.numel() for buffer in module.buffers()):
            key = f"[algorithm] name = '{type(self).__name__.lower()}'"
            why = "running statistics (BatchNorm) are not kept with an update"
            raise InputError(f"{key}: {why}; use GroupNorm")

    @abstractmethod
    def timetable(self, pace: Pace, silos: int, seed: int) -> Timetable:
        """Return what happens in each round.

        Args:
            pace: How long silos train.
            silos: How many there are.
            seed: What is drawn is derived from it.
        """

    @abstractmethod
    def kept(self, run: LocalRun) -> Tensor:
        """Return what a silo keeps of a training until it hands it over, shape [P]."""

    @abstractmethod
    def weighed(self, kept: Tensor, w: Tensor, age: int) -> Tensor:
        """Return how an update moves the server, shape [P].

        Args:
            kept: What the silo has kept.
            w: Today's model.
            age: How many rounds ago its training was begun.
        """

    def step(self, mean: Mean, cohort: Cohort) -> Tensor:
        """Return how the updates of a round move w, shape [P]: by their mean over the updates."""
        return mean["delta"] / mean.scalars["handed_over"]

    def round(self, server: Server, cohort: Cohort) -> dict[str, Any]:
        """Have silos begin and hand over as the clock says, and move w."""
        now = self._timetable(server.seed).round(server.round)
        told = {"events": json.dumps(now.events)} | ({"steps": json.dumps(now.steps)} if now.steps else {})
        mean = cohort.of(sorted(now.events)).mean(self.take_part, w=server.state["w"], **told)
        scalars = mean.scalars.copy()
        if share := scalars.pop("handed_over", 0.0):  # of silos that hand over twice both count
            scalars["train_loss"] /= share
            self.server_optimizer.step(server.state, self.step(mean, cohort))
        ages = sum(now.staleness) / len(now.staleness)
        return {**scalars, "staleness": ages, "virtual_seconds": now.seconds}

    def take_part(self, silo: Silo, w: Tensor, events: str, steps: str = "{}") -> Update:
        """Begin to train from w, or hand over what was trained: all of this round, in its order."""
        kept, begun, loss = (
            silo.state.get("update", w),
            silo.state.get("begun", -1),
            silo.state.get("loss", 0.0),
        )
        summed, losses = torch.zeros_like(w), []
        events_of = json.loads(events)[str(silo.id)]
        steps_of_events = json.loads(steps).get(str(silo.id), [None] * len(events_of))
        for event, many in zip(events_of, steps_of_events, strict=True):
            if event is None or begun != event:
                local = self.local if many is None else self.local.lasting(steps=many)
                run = silo.train_locally(w, local, correct=self.pull(w))
                kept, begun, loss = self.kept(run).clone(), silo.round, run.loss
                silo.turn += 1
            if event is not None:
                summed += self.weighed(kept, w, silo.round - begun)
                losses.append(loss)
        silo.keep(update=kept, begun=begun, loss=loss)
        if not losses:
            return silo.update()
        return silo.update(delta=summed, handed_over=len(losses), train_loss=sum(losses))

    def pull(self, w: Tensor) -> Proximal | None:
        """Return what holds a silo near the model that it began with."""
        return None

    def _timetable(self, seed: int) -> Timetable:
        if seed not in self._known:
            assert self.clock is not None
            pace = Pace(self.clock, self.local, self._silos, seed)
            self._known[seed] = self.timetable(pace, len(self._silos), pace.seed)
        return self._known[seed]


class Continuing(Asynchronous):
    """Silos that begin anew as soon as they are done, and a server that waits for a number of updates."""

    concurrency: PositiveInt | None = None
    """How many silos train at any time; by default all."""

    @property
    @abstractmethod
    def waits(self) -> int:
        """How many updates a step of the server is made of."""

    def for_federation(self, spec: AnySpec) -> Asynchronous:
        """Return the algorithm as it knows the silos.

        Raises:
            InputError: there are fewer silos than are to train at a time.
        """
        if self.concurrency is not None and self.concurrency > len(spec.silos):
            what = f"the federation has {count_of(len(spec.silos), 'silo')}; give at most that many"
            raise InputError(f"[algorithm] concurrency = {self.concurrency}: {what}")
        return super().for_federation(spec)

    def timetable(self, pace: Pace, silos: int, seed: int) -> Timetable:
        """Return the rounds, each of `waits` updates."""

        def seconds(silo: int, round: int, turn: int, nth: int) -> Fraction:
            return pace.seconds(silo, nth, pace.steps(silo, round, turn))

        return Schedule(silos, seconds, self.waits, self.concurrency or silos, seed)


class Aging(Asynchronous):
    """Updates that count the less the older they are: by alpha s(t - tau)."""

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.6
    """The share of an update, before staleness."""
    weighting: Literal["constant", "polynomial", "hinge"] = "polynomial"
    """How the share falls with staleness."""
    a: NonNegative = 0.5
    """How fast it falls, by polynomial and hinge."""
    b: NonNegative = 4.0
    """Up to which staleness hinge leaves it as it is."""

    @model_validator(mode="after")
    def _falls_as_it_says(self) -> Aging:
        what = f"weighting = '{self.weighting}' does not take it"
        if self.weighting == "constant":
            refuse_idle(self, ["a"], f"{what}; use 'polynomial' or 'hinge', or leave it out")
        if self.weighting != "hinge":
            refuse_idle(self, ["b"], f"{what}; use 'hinge', or leave it out")
        return self

    def share(self, stale: int) -> float:
        """Return s of t - tau."""
        if self.weighting == "polynomial":
            return float((stale + 1) ** -self.a)
        late = max(stale - self.b, 0.0) if self.weighting == "hinge" else 0.0
        return 1.0 / (self.a * late + 1.0)
