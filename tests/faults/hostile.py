"""A training with one rank that attacks: `HOSTILE` in the environment says which, and what it does in which
round.

    {"rank": R, "foreign": k, "spared": j, "rounds": {r: [NAME, ...], ...}, "made": FILE}
                                    rank R makes the attacks of these names in round r, once each; rounds
                                    count from 1
    {..., "always": true}           again in every attempt at the round

What has been made stands in FILE, a line each: round and name, and why it could not be if so; whose
evaluation was refused, in FILE.scores. Records are forged where they leave (`Transport.report`), so that
little is known here of what the package makes of them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import traceback
from pathlib import Path
from typing import Any

import torch
from attacks import ATTACKS, Hostile
from pydantic import Field
from torch import Tensor

import mpifl.exchange.broadcast
import mpifl.exchange.server_side.cohort
import mpifl.exchange.server_side.placement
from mpifl.algorithms.algorithm import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.common.errors import InputError
from mpifl.silo.silo import Silo
from mpifl.sums import local_sums, node_sums
from mpifl.sums.aggregator import Combined
from mpifl.sums.mean import WeightedMean
from mpifl.wings.robust import column_slices
from mpifl.wire import relayed_broadcast
from mpifl.wire.pipeline import FIRST_TAG
from mpifl.wire.transport import DONE, Transport
from mpifl.wire.update import Update, uniform

PLAN: dict[str, Any] = json.loads(os.environ.get("HOSTILE", "{}"))
BY_NAME = {attack.name: attack for attack in ATTACKS}
# silos stay where they are, so that the same are the hostile rank's
mpifl.exchange.server_side.placement.WORTH = float("inf")


class Attacked(FedAvg):
    """Has weighted and unweighted vectors, numbers, and state on both sides;
    says which silos each round asks."""

    cohorts: list[list[int]]
    failing: dict[str, list[int]] = Field(default={})
    """Silos that fail in a round of training, and ..."""
    unscored: dict[str, list[int]] = Field(default={})
    """... in the evaluation after it: those of the hostile rank, where there is none."""
    far: bool = False
    """Whether updates are of the largest numbers that there are."""

    def begin(self, server: Server) -> None:
        super().begin(server)
        server.state["c"] = torch.zeros_like(server.state["w"])

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        asked: Any = dataclasses.replace(cohort, silos=self.cohorts[server.round])  # type: ignore[type-var]
        mean = asked.mean(self.train, w=server.state["w"], c=server.state["c"])
        self.server_optimizer.step(server.state, mean["delta"])
        server.state["c"] += 0.5 * mean["shift"]
        return mean.scalars

    def train(self, silo: Silo, w: Tensor, c: Tensor) -> Update:
        if silo.id in self.failing.get(str(silo.round + 1), ()):
            raise InputError("its rank is hostile")
        own = silo.state.get("own", torch.zeros_like(w))
        run = silo.train_locally(w, self.local, correct=lambda grad, at, batch: grad.add_(c - own, alpha=0.1))
        silo.keep(own=own + 0.1 * run.delta)
        delta = torch.full_like(w, 3e38) if self.far else run.delta
        return silo.update(delta=delta, shift=uniform(-run.delta), train_loss=run.loss)

    def evaluate(self, silo: Silo, **model: Tensor) -> Update:
        if silo.id in self.unscored.get(str(silo.round), ()):
            raise InputError("its rank is hostile")
        return super().evaluate(silo, **model)


_TAKEN = ("report", "broadcast_record", "done", "_started", "hand_over", "trade")
_real = {name: getattr(Transport, name) for name in _TAKEN}
_real_mean = mpifl.exchange.server_side.cohort.ServerCohort.mean
_real_combine = WeightedMean.combine
_real_digest = mpifl.exchange.broadcast.heard_after
_truly_told = [b""]
"""The last record that came, whatever is made of it here: what is reported of it is true."""
_asked: dict[str, Any] = {}
_now: list[Hostile] = []
"""The hostile rank amid an attack: nothing, or one."""
_made: set[tuple[str, int]] = set()


def _note(line: str, ending: str = "") -> None:
    with Path(PLAN["made"] + ending).open("a") as file:
        file.write(f"{line}\n")


def _broadcast_record(transport: Any, record: bytes | None = None) -> bytes:
    told = _truly_told[0] = _real["broadcast_record"](transport, record)
    heard = json.loads(told) if told.startswith(b"{") else {}
    if "kind" in heard:
        _asked.clear()
        _asked.update(heard)
        for undo in [undo for rank in _now for undo in rank.undo]:
            undo()
        _now.clear()
        transport.instead_of_done = transport.done_as = transport.sum_as = None
        transport.no_share = False
        transport.share_as = transport.rows_as = transport.digits_as = None
    elif "accepted" in heard:
        for act in [act for rank in _now for act in rank.judged]:
            act()
        if getattr(transport, "no_share", False):
            heard["pieces"] = []
            for _ in json.loads(told)["pieces"]:
                transport.done(heard["serial"])
            return json.dumps(heard).encode()
    return bytes(told)


def _report(transport: Any, record: bytes) -> None:
    asked = _asked or {"kind": "start", "round": -1}
    what = asked.get("work", asked["kind"])
    round = asked["round"] + (what == "train")
    name = next((name for name in PLAN["rounds"].get(str(round), ()) if BY_NAME[name].at == what), None)
    if name is None or ((name, round) in _made and not PLAN.get("always")):
        _real["report"](transport, record)
        return
    _made.add((name, round))
    try:
        rank = Hostile(json.loads(record or b"{}"), asked, transport, PLAN["foreign"], PLAN["spared"])
        _now.append(rank)
        forged = BY_NAME[name].forge(rank)
    except Exception:
        _note(f"{round} {name}: {traceback.format_exc(limit=-1)!r}")
        _real["report"](transport, record)
        return
    _note(f"{round} {name}")
    for one in (
        forged if isinstance(forged, tuple) else [forged if isinstance(forged, bytes) else rank.report]
    ):
        _real["report"](transport, one if isinstance(one, bytes) else json.dumps(one).encode())


def _done(transport: Any, serial: int) -> None:
    if not getattr(transport, "instead_of_done", None):
        _real["done"](transport, serial)


def _hand_over(transport: Any, rank: int, content: Any, stamp: Any) -> bool:
    if isinstance(content, bytes) and getattr(transport, "share_as", None):
        (instead,) = transport.share_as
        return instead is None or bool(_real["hand_over"](transport, rank, instead, stamp))
    if not isinstance(content, bytes) and content[0].dtype == torch.int64:
        change = getattr(transport, "digits_as", None)
        content = [change(content[0]).contiguous()] if change else content
    return bool(_real["hand_over"](transport, rank, content, stamp))


def _trade(transport: Any, outgoing: Any, incoming: Any, stamp: Any) -> Any:
    if change := getattr(transport, "rows_as", None):
        outgoing = {
            rank: [change(vector).contiguous() for vector in vectors] for rank, vectors in outgoing.items()
        }
    return _real["trade"](transport, outgoing, incoming, stamp)


def _started(transport: Any, act: Any, *arguments: Any) -> Any:
    tag = arguments[2] if len(arguments) == 3 else None
    a_piece = tag is not None and tag >= FIRST_TAG and act.__name__ == "Isend"
    if a_piece and getattr(transport, "sum_as", None):
        arguments = (transport.sum_as(arguments[0]).contiguous(), *arguments[1:])
    if tag == DONE and act.__name__ == "Isend" and getattr(transport, "done_as", None) is not None:
        arguments = (bytearray(transport.done_as), *arguments[1:])
    return _real["_started"](transport, act, *arguments)


def _combine(mean: Any, transport: Any, verdict: Any) -> Any:
    """Bear what its own words lead to: the rank is hostile, not mad."""
    try:
        return _real_combine(mean, transport, verdict)
    except (KeyError, OSError, RuntimeError):
        if not _now:
            raise
        return Combined()


def _noted_mean(cohort: Any, work: Any, /, **message: Any) -> Any:
    """Write down whose evaluation was refused: the user is told only of what is new."""
    mean = _real_mean(cohort, work, **message)
    if work.__name__ == "evaluate":
        _note(json.dumps({"round": cohort.server.round, "unscored": mean.faults}), ".scores")
    return mean


column_slices.BLOCK, column_slices.LONGEST_CHUNK = (
    16,
    48,
)  # so that every rank makes some columns, in several chunks
local_sums.FEW = 1  # some silos are added up, and one is left as it came
node_sums.WHOLE = node_sums.PIECE = node_sums.ALIGNED  # and carries pieces of what travels between nodes
relayed_broadcast.LONG, relayed_broadcast.PIECE = 1000, 256
if PLAN:
    for ending in ("", ".scores"):
        Path(PLAN["made"] + ending).touch()
    mpifl.exchange.server_side.cohort.ServerCohort.mean = _noted_mean
if PLAN and os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMIX_RANK")) == str(PLAN["rank"]):
    for name, act in zip(
        _TAKEN, (_report, _broadcast_record, _done, _started, _hand_over, _trade), strict=True
    ):
        setattr(Transport, name, act)
    WeightedMean.combine = _combine
    mpifl.exchange.broadcast.heard_after = lambda heard, record: _real_digest(heard, _truly_told[0])
