"""Faults of the protocol that are planted, to see that the simulation finds them.

Each is a change of one rule. It counts as found when a schedule that passes without it is judged a fault with
it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from mpifl.common import InputError
from mpifl.common.machine import signals
from mpifl.exchange.broadcast import Broadcast
from mpifl.exchange.federation import Federation
from mpifl.exchange.server_side.gathering import ReportGathering
from mpifl.exchange.server_side.membership import Membership
from mpifl.exchange.worker_side.silo_states import States
from mpifl.exchange.worker_side.worker import Worker
from mpifl.report.observers import Progress, jsonlines
from mpifl.report.observers.jsonlines import JsonLines
from mpifl.run.folder import checkpoint
from mpifl.training import loop, start
from mpifl.training.recovery import Recovery
from mpifl.wire import Report
from mpifl.wire.launching.deaths import DeathWatch
from mpifl.wire.memory import Memory
from mpifl.wire.point_to_point import PointToPoint
from mpifl.wire.transport import Transport
from tests.simulated.drawing import USUAL_CALLS, drawn
from tests.simulated.judging import Verdict
from tests.simulated.schedule import Schedule
from tests.simulated.shrinking import verdict_of
from tests.simulated.simulated_platform import BEGAN, SimulatedPlatform
from tests.simulated.trainings import Yard

Patch = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True)
class Planted:
    """A fault, and where it is looked for.

    Attributes:
        patch: Plants it.
        ways: What is trained.
        kinds: The troubles; see `drawing`.
        world: What holds of all worlds; `calls`: among which of its calls a rank dies; `sleep`: for how long
            one is late.
        who: The rank that dies first, if that matters.
    """

    patch: Patch
    ways: tuple[str, ...] = ("fedavg",)
    kinds: tuple[str, ...] = ("calm",)
    world: tuple[tuple[str, Any], ...] = ()
    who: int | None = None

    def schedules(self, most: int) -> Iterator[Schedule]:
        """Yield schedules that may find it."""
        for seed in range(most):
            way, kind = self.ways[seed % len(self.ways)], self.kinds[seed % len(self.kinds)]
            world = dict(self.world)
            first, last = world.pop("calls", (1, USUAL_CALLS))
            sleep = world.pop("sleep", None)
            schedule = dataclasses.replace(drawn(seed, way, kind), **world)
            late = tuple((*moment, sleep or seconds) for *moment, seconds in schedule.late)
            who = self.who
            kill = tuple(
                (rank if who is None else who, "", first + nth % (last - first))
                for rank, _, nth in schedule.kill
            )
            yield dataclasses.replace(schedule, kill=kill, late=late)


def _instead(where: Any, name: str, act: Callable[..., Any]) -> Patch:
    """Return what has `act` called in place of a method, with the real one before its arguments."""

    def patch() -> contextlib.AbstractContextManager[Any]:
        real = getattr(where, name)
        return mock.patch.object(where, name, lambda *given, **named: act(real, *given, **named))

    return patch


def _left_out(where: Any, name: str, answer: object = None) -> Patch:
    return _instead(where, name, lambda real, *given, **named: answer)


def _twice(real: Any, self: Any, *given: Any, **named: Any) -> Any:
    """Have the server do it twice, and nobody else."""
    transport = getattr(self, "transport", self)
    if transport.is_server and transport.size > 1:
        real(self, *given, **named)
    return real(self, *given, **named)


def _any_stamp(real: Any, wire: Any, rank: int, tag: int, stamp: Any, nbytes: int, until: float) -> Any:
    found = next(wire._messages(rank, tag, until, 1 << 20), None)
    return None if found is None else memoryview(found)[16:]


def _old_numbers(real: Any, member: Membership, workers: Any, ranks: Any) -> None:
    before = set(member.timed_out)
    real(member, workers, ranks)
    member.timed_out = before


def _kept_at_once(real: Any, states: States, silo: int, kept: Any) -> None:
    states.kept.setdefault(silo, {}).update(kept)


def _any_serial(real: Any, gathering: ReportGathering, request: Any, deadline: Any) -> Any:
    for rank, came in gathering._arriving(request, set(range(1, gathering._transport.size)), deadline):
        yield rank, came.model_copy(update={"serial": request.serial})
        if gathering._transport.size == 2:
            return


def _reused_buffer(real: Any, wire: Any, record: bytes, ranks: Any, tag: int) -> None:
    buffer = np.frombuffer(record, np.uint8).copy()
    wire._abandoned += [wire._started(wire._comm.Isend, buffer, rank, tag) for rank in ranks]
    wire._notify(ranks)
    buffer[:] = 0


def _unfinished(real: Any, wire: Any, request: Any, until: float | None = None) -> bool:
    wire._abandoned.append(request)
    return True


def _not_removed(real: Any, worker: Worker, request: Any, verdict: Any) -> None:
    mine = set(worker.silos)
    real(worker, request, verdict)
    worker.silos |= mine


def _hosted_twice(real: Any, member: Membership, assignment: Any, accepted: Any, headers: Any) -> None:
    before = {rank: set(silos) for rank, silos in member.placed.items()}
    real(member, assignment, accepted, headers)
    for rank, silos in before.items():
        member.placed[rank] |= silos


def _same_segment(real: Any, memory: Memory, length: int, dtype: torch.dtype) -> Any:
    vector = real(memory, length, dtype)
    segment = memory._lent.get(vector.data_ptr())
    if segment is not None:
        memory._free[segment.nbytes].append(segment)
    return vector


def _not_met(real: Any, transport: Transport) -> Any:
    agreed = transport.agreed
    found = real(transport)
    transport.agreed = agreed
    return found


def _parts_alone(real: Any, federation: Federation) -> None:
    if not federation.transport.is_server:
        real(federation)


def _first_vector(real: Any, broadcast: Broadcast, spec: Any, *given: Any) -> Any:
    vector = real(broadcast, spec, *given)
    return broadcast.__dict__.setdefault("first", {}).setdefault(spec.name, vector.clone())


def _first_mirror(federation: Federation) -> Any:
    return federation.replicas[0] if federation.replicas else None


def _believed(record: bytes, silos: int) -> Report:
    return Report.model_validate_json(record)


def _forgets(lines: JsonLines) -> None:
    with contextlib.suppress(OSError):
        jsonlines._append(lines._path, lines._left)
    lines._left = b""


def _torn_is_wrong(t: Any, round: int, begun: Any) -> Any:
    try:
        return _load(t, round, begun)
    except checkpoint.CheckpointError as error:
        raise InputError(str(error)) from None


_load = start._load
_UNFLUSHED = SimpleNamespace(**vars(os) | {"fsync": lambda _: None})
DEATHS, LATE, HALT = ("death", "two"), ("late",), ("halt",)
APART = (("nodes", 1), ("ranks", 4))
AGREEING = (("calls", (20, 70)),)
FAULTS = {
    "a verdict is sent twice": Planted(_instead(Federation, "_decide", _twice)),
    "a vector is sent twice": Planted(_instead(Transport, "broadcast_vector", _twice), world=APART),
    "a stamp is not looked at": Planted(
        _instead(Transport, "_stamped", _any_stamp), ("median", "masks"), LATE, (("sleep", 3.0),)
    ),
    "a rank's number is not renewed": Planted(
        _instead(Membership, "renumber", _old_numbers), ("deadline",), ("late death",)
    ),
    "what a silo keeps counts before the verdict": Planted(
        _instead(States, "keep", _kept_at_once), ("scaffold",), DEATHS
    ),
    "a report's serial is not looked at": Planted(
        _instead(ReportGathering, "reports", _any_serial), ("deadline",), LATE
    ),
    "a round asked again has the same stamp": Planted(
        _left_out(Federation, "attempt", 0), ("scaffold",), DEATHS
    ),
    "a buffer is used again while it is sent": Planted(_instead(PointToPoint, "_send_all", _reused_buffer)),
    "nobody waits for an operation": Planted(_instead(PointToPoint, "wait", _unfinished)),
    "a silo that has moved stays": Planted(_instead(Worker, "_commit_moves", _not_removed), ("moves",)),
    "a silo that has moved counts twice": Planted(_instead(Membership, "commit", _hosted_twice), ("moves",)),
    "a vector that is lent is lent again": Planted(_instead(Memory, "empty", _same_segment)),
    "survivors do not tell what they know": Planted(
        _instead(Transport, "_shrunk", _not_met), ("fedavg",), DEATHS, AGREEING
    ),
    "the server leaves without a word": Planted(_instead(Federation, "_part", _parts_alone)),
    "a leader hands nothing on": Planted(
        lambda: mock.patch("mpifl.wire.nodes.children", lambda node, nodes: [1, 2, 3] if not node else []),
        world=(("nodes", 1), ("ranks", 5)),
    ),
    "a leader waits for no share": Planted(_left_out(Transport, "await_done", set()), ("fedavg", "krum")),
    "a death is an error": Planted(
        _instead(DeathWatch, "translate_error", lambda real, self, error: error), kinds=DEATHS
    ),
    "what was heard before a death still counts": Planted(
        _instead(Broadcast, "renumber", lambda real, self, ranks: self._received.clear()),
        kinds=DEATHS,
        world=(("nodes", 1), ("ranks", 5), ("calls", (100, 300))),
    ),
    "the first vector of a name stays": Planted(_instead(Broadcast, "_vector", _first_vector)),
    "silos forget when a run continues": Planted(_left_out(Worker, "_read_state", {}), ("scaffold",), HALT),
    "a round's line stays when it is done again": Planted(
        lambda: mock.patch.object(loop, "trim_metrics"), kinds=HALT
    ),
    "a mirror is of the round before": Planted(
        lambda: mock.patch.object(start, "latest_mirror", _first_mirror),
        ("mirror",),
        DEATHS,
        (("nodes", 1), ("calls", (200, 500))),
        who=0,
    ),
    "silos stay lost with their rank": Planted(_left_out(Recovery, "_host", {}), kinds=DEATHS),
    "a checkpoint does not wait for the server's state to fit": Planted(
        _left_out(Recovery, "realign"), ("scaffold",), DEATHS
    ),
    "lines that had no room are forgotten": Planted(
        lambda: mock.patch.object(JsonLines, "_write", _forgets), kinds=("disk",)
    ),
    "files are not flushed": Planted(
        lambda: mock.patch("mpifl.common.files.os", _UNFLUSHED), ("fedavg", "scaffold"), ("power",)
    ),
    "a torn checkpoint ends a run": Planted(
        lambda: mock.patch.object(start, "_load", _torn_is_wrong), ("fedavg", "scaffold"), ("torn",)
    ),
    "a training that is asked to end counts as done": Planted(
        _instead(Progress, "finished", lambda real, *given: real(*given) or signals.pending()),
        kinds=("signal",),
    ),
    "a rank waits by the clock of the day": Planted(
        _instead(SimulatedPlatform, "clock", lambda *_: time.time() - BEGAN),
        ("median", "deadline", "krum"),
        ("jump",),
        (("eager", 0),),
    ),
    "what a rank reports is believed": Planted(
        lambda: mock.patch("mpifl.exchange.server_side.gathering.read", _believed), kinds=("lies",)
    ),
    "a node's silos stay lost": Planted(
        _left_out(Recovery, "_host", {}), kinds=("node",), world=(("nodes", 2), ("ranks", 5))
    ),
}
"""By what is wrong."""


def looked_for(yard: Yard, name: str, most: int) -> tuple[Schedule, Verdict, int] | None:
    """Return the schedule that finds a planted fault, what it says, and how many were tried; None if none
    does."""
    planted = FAULTS[name]
    for tried, schedule in enumerate(planted.schedules(most), 1):
        yard.truth(schedule.way)
        with planted.patch():
            found = verdict_of(yard, schedule)
        if found.is_fault and not verdict_of(yard, schedule).is_fault:
            return schedule, found, tried
    return None
