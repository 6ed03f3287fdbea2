"""Asynchronous rounds on the server's virtual clock: nobody waits for slow silos."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar

import torch
from pydantic import PositiveInt, PrivateAttr
from torch import Tensor, nn

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.algorithms.virtual_clock import Schedule
from mpifl.common import InputError, rng
from mpifl.data.shards import AnySpec, FederationSpec
from mpifl.silo import Silo
from mpifl.silo.steps import LocalRun, Proximal, steps_of
from mpifl.wire import Update


class Asynchronous(FedAvg):
    """What silos train that hand over their updates when they are done, each at its own time.

    A round is one step of the server. It asks silos that begin now to train from w and keep the update, and
    silos that are done now to hand over what they kept. Who does what follows from the job alone. A silo that
    has lost what it kept, when its rank died, trains from today's w and hands that over.
    """

    timed: ClassVar[bool] = True
    varied: ClassVar[bool] = True
    ways: ClassVar[tuple[str, ...]] = ("clock",)
    needs_mean: ClassVar[str] = "silos hand over updates of models of unequal age"
    unlike_fedavg: ClassVar[str] = "hands over what it made of an older model"
    not_private = "hands over in one round what it trained in another; use fedavg"
    not_noised = "silos hand over in one round what they trained in another"
    not_masked = "few silos hand over at a time, and a sum over few hides little"
    not_clipped = "a silo may hand over several at a time, each with a weight of its own"

    concurrency: PositiveInt | None = None
    """How many silos train at any time; by default all."""

    _silos: tuple[tuple[str, int], ...] = PrivateAttr(default=())
    _known: dict[int, Schedule] = PrivateAttr(default_factory=dict)
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
            if (self.concurrency or 0) > len(made._silos):
                what = f"there are {len(made._silos)} silos; give at most that many"
                raise InputError(f"[algorithm] concurrency = {self.concurrency}: {what}")
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

    @property
    @abstractmethod
    def waits(self) -> int:
        """How many updates a step of the server is made of."""

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

    def round(self, server: Server, cohort: Cohort) -> dict[str, Any]:
        """Have silos begin and hand over as the clock says, and move w."""
        now = self._schedule(server.seed).round(server.round)
        events = json.dumps({str(silo): of_silo for silo, of_silo in now.events.items()})
        mean = cohort.of(sorted(now.events)).mean(self.take_part, w=server.state["w"], events=events)
        scalars = dict(mean.scalars)
        if share := scalars.pop("handed_over", 0.0):  # of silos that hand over twice both count
            scalars["train_loss"] /= share
            self.server_optimizer.step(server.state, mean["delta"] / share)
        ages = sum(now.staleness) / len(now.staleness)
        return {**scalars, "staleness": ages, "virtual_seconds": now.seconds}

    def take_part(self, silo: Silo, w: Tensor, events: str) -> Update:
        """Begin to train from w, or hand over what was trained: all of this round, in its order."""
        kept, begun, loss = (
            silo.state.get("update", w),
            silo.state.get("begun", -1),
            silo.state.get("loss", 0.0),
        )
        summed, losses = torch.zeros_like(w), []
        for event in json.loads(events)[str(silo.id)]:
            if event is None or begun != event:
                run = silo.train_locally(w, self.local, correct=self.pull(w))
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

    def _schedule(self, seed: int) -> Schedule:
        if seed not in self._known:
            assert self.clock is not None
            own = seed if self.clock.seed is None else self.clock.seed
            concurrency = self.concurrency or len(self._silos)
            self._known[seed] = Schedule(
                len(self._silos), self._seconds(seed, own), self.waits, concurrency, own
            )
        return self._known[seed]

    def _seconds(self, seed: int, own: int) -> Callable[[int, int, int, int], Fraction]:
        """Return how long a training takes by the clock: its steps, at the silo's speed."""
        assert self.clock is not None
        clock, local = self.clock, self.local
        speeds = clock.speeds_of([name for name, _ in self._silos], own)

        def seconds(silo: int, round: int, turn: int, nth: int) -> Fraction:
            lot = rng.torch_stream(seed, "stragglers", *rng.turn(silo, round, turn))
            steps = steps_of(local.at_round(round).of_silo(silo, lot), self._silos[silo][1])
            return clock.took(steps, speeds[silo], own, silo, nth)

        return seconds
