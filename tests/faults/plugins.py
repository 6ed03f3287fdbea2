"""What the fault tests train: a model and an algorithm that get into trouble where `TROUBLE` in the
environment says.

    {"model": R}                    the model's factory fails on rank R
    {"server": r}                   the server's half fails in round r
    {"exchange": r}                 the server fails amid an exchange of round r, before its verdict
    {"evaluate": r}                 no silo can be evaluated in round r
    {"silos": [k, ...], "from": r}  these silos fail from round r on
    {"mistake": r}                  every silo fails from round r on, by a mistake in the algorithm
    {"slow": [k, r, s]}             silo k takes s seconds longer in round r
    {"hold": r, "at": FOLDER}       in round r each silo writes FOLDER/reached, and waits for FOLDER/open;
                                    in a dialogue before its fifth line
    {"nan": [k, r]}                 the fifth line of silo k in round r is not finite
    {"long": [k, r]}                the fifth line of silo k in round r has 80 MB
    {"die": {R: [WHEN, kind, r]}}   rank R kills itself in round r at this kind of request, or method of
                                    `compute`: when it is asked (WHEN = "asked"), has done it ("worked"),
                                    takes its turn at a vector of the request ("receiving"),
                                    has the verdict ("judged"), is to send a piece of a sum to another node
                                    ("carrying"), or is to leave ("leaving")
    {"agreed": [R, [n, ...]]}       rank R kills itself when it knows that all ranks are ready, and has told
                                    those of the ranks that it is to tell that have these numbers of its list
    {"beat": [R, WHEN, work, r]}    rank R kills itself in round r amid the masked sum of this work: before
                                    it is ready (WHEN = "readying"), before ("ready") or after ("released")
                                    it tells or hears that the sum is released, when its site has noted that
                                    ("noted"), or when its vectors lie where others read them ("handed")
    {"freeze": {R: [WHEN, kind, r]}}
                                    as `die`, but it stops for ever instead
    {"blind": [[R, ...], k]}        ranks R cannot read the shard of silo k
    {"restless": true}              silos move after every checkpoint, however little is won by it
    {"write": [r, PATTERN, n], "at": FOLDER}
                                    a process stops for ever half way through the n-th file of its that fits
                                    the pattern in the checkpoint of round r, and says so by FOLDER/reached
    {"unbuffered": true}            a message is sent when its receiver takes it, however short it is
    {"full": [r, PATTERN]}          the disk is full for files of round r's checkpoint that fit the pattern

Rounds count from 1, as in metrics.jsonl.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import signal
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

import scenarios
import torch
from torch import Tensor, nn

import mpifl.exchange.broadcast
import mpifl.exchange.federation
import mpifl.exchange.server_side.placement
import mpifl.exchange.server_side.workload
import mpifl.exchange.worker_side.worker
import mpifl.training.build
from mpifl.algorithms.algorithm import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.common.errors import ShardError
from mpifl.run.folder import checkpoint, serialization
from mpifl.silo.silo import Silo
from mpifl.sums import node_sums
from mpifl.sums.mean import WeightedMean
from mpifl.training import rank_agreement
from mpifl.wings.masked import fixed_sum, masked_party, release_phases
from mpifl.wings.split.column_silo import ColumnSilo
from mpifl.wings.split.splitnn import SplitNN
from mpifl.wire import relayed_broadcast
from mpifl.wire.pipeline import Pipeline
from mpifl.wire.point_to_point import PointToPoint
from mpifl.wire.transport import RECORD, Transport
from mpifl.wire.update import Update

TROUBLE: dict[str, Any] = json.loads(os.environ.get("TROUBLE", "{}"))
FIFTH = 5
"""The line of a dialogue in which there is trouble."""
PATIENCE = 90
"""Seconds after which a process that was forgotten gives up."""


def perceptron(shape: Sequence[int], classes: int) -> nn.Module:
    if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == str(TROUBLE.get("model")):
        raise KeyError("no such layer")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))


class Steady(scenarios.Stateful):
    """Keeps state at the server and at every silo, so that a checkpoint is many files."""

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        if TROUBLE.get("server") == server.round + 1:
            raise ArithmeticError("the server stumbles")
        if TROUBLE.get("exchange") == server.round + 1:
            mpifl.exchange.federation.Federation._decide = _stumble  # type: ignore[method-assign]
        return super().round(server, cohort)

    def learn(self, silo: Silo, w: Tensor, c: Tensor, scale: float) -> Update:
        if silo.id in TROUBLE.get("silos", ()) and silo.round + 1 >= TROUBLE["from"]:
            raise ConnectionError("the data base is down")
        if silo.round + 1 >= TROUBLE.get("mistake", math.inf):
            raise KeyError("no such layer")
        if TROUBLE.get("slow", ())[:2] == [silo.id, silo.round + 1]:
            time.sleep(TROUBLE["slow"][2])
        if TROUBLE.get("hold") == silo.round + 1:
            _reach_and_wait()
        return super().learn(silo, w, c, scale)

    def evaluate(self, silo: Silo, **message: Any) -> Update:
        if TROUBLE.get("evaluate") == silo.round:
            raise ConnectionError("the data base is down")
        return super().evaluate(silo, **message)


class Uneven(FedAvg):
    """Silo 1 answers with one element too many."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        update = super().train(silo, w)
        if silo.id == 1:
            update.vectors["delta"] = torch.zeros(len(w) + 1)
        return update


class Talking(SplitNN):
    """Silos have columns, and talk with the holder of the labels."""

    def bottom(self, silo: ColumnSilo) -> Generator[Tensor, Tensor | None, Update]:
        half, answer = super().bottom(silo), None
        for line in itertools.count(1):
            try:
                said = half.send(answer)
            except StopIteration as end:
                return cast("Update", end.value)
            if line == FIFTH and TROUBLE.get("hold") == silo.round + 1:
                _reach_and_wait()
            if line == FIFTH and TROUBLE.get("nan") == [silo.id, silo.round + 1]:
                said = torch.full_like(said, math.nan)
            if line == FIFTH and TROUBLE.get("long") == [silo.id, silo.round + 1]:
                said = torch.zeros(20_000_000, 1)
            answer = yield said
        raise AssertionError("unreachable")


def _stumble(*_: object) -> Any:
    raise ArithmeticError("the server stumbles")


def _reach_and_wait() -> None:
    (Path(TROUBLE["at"]) / "reached").touch()
    deadline = time.monotonic() + PATIENCE
    while not (Path(TROUBLE["at"]) / "open").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody opened the gate")
        time.sleep(0.005)


_write_aside = checkpoint.write_atomic
_fitting: list[Path] = []


def _write_half(path: Path, content: bytes) -> None:
    round, pattern, nth = TROUBLE["write"]
    if path.parent.name == f"round_{round:06d}" and fnmatch(path.name, pattern):
        _fitting.append(path)
        if len(_fitting) == nth:
            content = content if isinstance(content, bytes) else b"".join(content)
            path.with_name(f".{path.name}.{os.getpid()}.partial").write_bytes(content[: len(content) // 2])
            _reach_and_wait()
    _write_aside(path, content)


def _write_where_all_is_full(path: Path, content: bytes) -> None:
    round, pattern = TROUBLE["full"]
    if path.parent.name == f"round_{round:06d}" and fnmatch(path.name, pattern):
        content = _without_room(content)
    _write_aside(path, content)


def _without_room(content: bytes | Iterable[bytes]) -> Iterator[bytes]:
    """Yield what the disk still takes of a file, which is all but its end."""
    yield from [content] if isinstance(content, bytes) else content
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


_RANK = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
_answer, _open_shard = mpifl.exchange.worker_side.worker.Worker.answer, mpifl.training.build.open_shard
_combine, _part = WeightedMean.combine, mpifl.exchange.federation.Federation._part
_post, _carry, _read = (
    Pipeline.post,
    relayed_broadcast.Spreading._carry,
    mpifl.exchange.broadcast.read_request,
)
_started = PointToPoint._started
_heard: list[tuple[str, int]] = []
_asked: list[tuple[str, int]] = []


def _die_if(when: str) -> None:
    for what, number in (("die", signal.SIGKILL), ("freeze", signal.SIGSTOP)):
        if [when, *_asked[-1]] == TROUBLE.get(what, {}).get(_RANK):
            os.kill(os.getpid(), number)


def _answer_or_die(worker: Any, request: Any, vectors: Any, lead: Any = None) -> Any:
    work = getattr(request, "work", request.kind)
    _asked.append((work, request.round + (work in ("learn", "take_part"))))
    _die_if("asked")
    report = _answer(worker, request, vectors, lead)
    _die_if("worked")
    return report


def _part_or_die(federation: Any) -> None:
    _part(federation)
    _die_if("leaving")


def _combine_or_die(mean: Any, transport: Any, verdict: Any) -> Any:
    _die_if("judged")
    return _combine(mean, transport, verdict)


def _post_or_die(pipeline: Any, piece: Tensor, rank: int) -> None:
    _die_if("carrying")
    _post(pipeline, piece, rank)


def _read_and_note(record: bytes) -> Any:
    request = _read(record)
    _heard.append((getattr(request, "work", request.kind), request.round + 1))
    return request


def _carry_or_die(spreading: Any, here: Tensor) -> bool:
    """Carry the pieces of a request's vector; get into trouble before any of them."""
    for what, number in (("die", signal.SIGKILL), ("freeze", signal.SIGSTOP)):
        if ["receiving", *_heard[-1]] == TROUBLE.get(what, {}).get(_RANK):
            os.kill(os.getpid(), number)
    return bool(_carry(spreading, here))


def _dying(when: str, act: Any, work_of: Any) -> Any:
    """Have this rank kill itself before it does something for the sum that is meant."""

    def die_or_act(self: Any, *arguments: Any, **more: Any) -> Any:
        if [when, *work_of(self)] == TROUBLE["beat"][1:]:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(self, *arguments, **more)

    return die_or_act


def _die_in_a_beat() -> None:
    """Have this rank kill itself where `beat` says."""
    sums = fixed_sum.FixedSum
    now = [("", -1)]

    def combine(self: Any, transport: Any, verdict: Any) -> Any:
        request = self._request
        now[0] = (getattr(request, "work", ""), request.round + 1)
        return real(self, transport, verdict)

    def released(self: Any, *arguments: Any) -> Any:
        told = before(self, *arguments)
        return after(told)

    def of_now(self: Any) -> tuple[str, int]:
        return now[0]

    real = sums.combine
    before = _dying("ready", release_phases.Phases.release, of_now)
    after = _dying("released", lambda told: told, of_now)
    sums.combine = combine  # type: ignore[method-assign]
    sums._readiness = _dying("readying", sums._readiness, of_now)  # type: ignore[method-assign]
    release_phases.Phases.release = released  # type: ignore[method-assign]
    masked_party.MaskedParty.mask = _dying("noted", masked_party.MaskedParty.mask, of_now)  # type: ignore[method-assign]
    release_phases.Phases.tails = _dying("handed", release_phases.Phases.tails, of_now)  # type: ignore[method-assign]


def _agree_or_die(transport: Transport, *arguments: Any) -> None:
    def tell_some(record: bytes, ranks: Sequence[int], tag: int) -> None:
        if tag != RECORD:
            return real(record, ranks, tag)
        real(record, [ranks[nth] for nth in TROUBLE["agreed"][1]], tag)
        return os.kill(os.getpid(), signal.SIGKILL)

    real = transport._send_all
    transport._send_all = tell_some  # type: ignore[method-assign]
    rank_agreement.agree_on(transport, *arguments)


def _started_unbuffered(wire: PointToPoint, act: Any, *arguments: Any) -> Any:
    """Send as an MPI does that buffers nothing."""
    return _started(wire, wire._comm.Issend if act == wire._comm.Isend else act, *arguments)


def _open_or_not(folder: Path, entry: Any, spec: Any) -> Any:
    ranks, silo = TROUBLE["blind"]
    if int(_RANK) in ranks and entry is spec.silos[silo]:
        raise ShardError(f"{entry.file}: is not on this machine")
    return _open_shard(folder, entry, spec)


if "die" in TROUBLE or "freeze" in TROUBLE:
    mpifl.exchange.worker_side.worker.Worker.answer = _answer_or_die
    WeightedMean.combine = _combine_or_die
    Pipeline.post = _post_or_die  # type: ignore[method-assign]
    node_sums.WHOLE = node_sums.PIECE = node_sums.ALIGNED  # so that every rank of a node carries a piece
    relayed_broadcast.LONG, relayed_broadcast.PIECE = 1000, 256
    relayed_broadcast.Spreading._carry = _carry_or_die  # type: ignore[method-assign]
    mpifl.exchange.broadcast.read_request = _read_and_note
    mpifl.exchange.federation.Federation._part = _part_or_die
if "beat" in TROUBLE and str(TROUBLE["beat"][0]) == _RANK:
    _die_in_a_beat()
if "blind" in TROUBLE:
    mpifl.training.build.open_shard = _open_or_not
if "write" in TROUBLE:
    # no silo moves: for that the server would wait for the checkpoint that is held
    mpifl.exchange.server_side.placement.WORTH = float("inf")
    checkpoint.write_atomic = serialization.write_atomic = _write_half
if TROUBLE.get("agreed", [None])[0] == int(_RANK):
    mpifl.training.build.agree_on = _agree_or_die
if TROUBLE.get("unbuffered"):
    PointToPoint._started = _started_unbuffered  # type: ignore[method-assign]
if TROUBLE.get("restless"):
    mpifl.exchange.server_side.placement.GAIN = mpifl.exchange.server_side.placement.WORTH = 0.0
    mpifl.exchange.server_side.workload.MEASURED = 1
if "full" in TROUBLE:
    checkpoint.write_atomic = serialization.write_atomic = _write_where_all_is_full
