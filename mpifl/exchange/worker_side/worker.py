"""The silos that one rank hosts: carrying out requests, and what they keep."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from mpifl.algorithms import Lead, usual_weight
from mpifl.common import InputError, Names, ShardError, SharedVectorChanged, Unlike, Unwritable
from mpifl.common.machine import accelerators
from mpifl.data.shards import Shard
from mpifl.exchange import Undelivered, undelivered
from mpifl.exchange.worker_side.final_model import FinalModel
from mpifl.exchange.worker_side.silo_states import States
from mpifl.exchange.worker_side.update_checks import as_update, check_update, defined, reason_of
from mpifl.exchange.worker_side.worker_context import WorkerContext
from mpifl.run.folder import StateFiles
from mpifl.silo import Silo
from mpifl.silo.steps import Trains, train
from mpifl.sums import Aggregator
from mpifl.wire import (
    AnyReply,
    Compute,
    Done,
    FileReply,
    Finish,
    FinishReply,
    Header,
    Inventory,
    Load,
    Migrate,
    Open,
    Replica,
    Replicate,
    Report,
    Request,
    Save,
    SaveStatus,
    Transport,
    Update,
    Verdict,
)

Handler = Callable[[int, Any, dict[str, Tensor]], AnyReply]
Receiver = Callable[[Any, dict[str, Tensor]], None]
Together = Callable[[Sequence[int], Any, dict[str, Tensor], Lead | None], list[AnyReply]]
"""Answers a request for all silos of a rank that are asked; at the server it is given who leads."""


class Worker:
    """Hosts silos: one model that is lent to them in turn, their states, and their shards, opened when first
    asked.

    Attributes:
        silos: Those that it hosts.
        states: What they keep.
        aggregators: What answers requests of a wing's own kinds.
        together: What answers, for all silos at once, requests of a wing's own kinds.
        replicas: The server's state after the latest rounds, the latest last; the one before it holds until
            all ranks have the latest.
    """

    def __init__(
        self,
        context: WorkerContext,
        silos: Sequence[int],
        about: Mapping[str, str],
        transport: Transport,
        trains: Trains = train,
    ) -> None:
        self.silos = set(silos)
        self.states = States()
        self.replicas: deque[Replica] = deque(maxlen=2)
        self._transport = transport
        self._context, self._model, self._about = context, context.models[0], dict(about)
        self._mean = context.averaging.aggregator(self._model.device, transport.memory)
        rule = context.rule
        self._by_rule = self._mean if rule is None else rule.aggregator(transport.memory)
        self.aggregators: dict[type[Request], Aggregator] = {}
        self.together: dict[type[Request], Together] = {}
        self.aggregation: Aggregator = self._by_rule
        """Of the request that is answered: the job's rule in training, the exact mean in all else."""
        self._shards: dict[int, Shard] = {}
        self._trains = trains
        self._tells = context.tells(Names([entry.name for entry in context.spec.silos]))
        self._files = StateFiles(context.run, context.seal)
        self._final = FinalModel(context.run, context.algorithm, self._model, context.personal)
        self._handlers = self._handlers_of_silos()
        self._receivers: dict[type[Request], Receiver] = {Replicate: self._replicate}
        """What a request has the rank do, whatever it hosts."""

    @property
    def kinds(self) -> frozenset[type[Request]]:
        """The kinds of requests that it answers by itself."""
        return frozenset([*self._handlers, *self._receivers])

    def _handlers_of_silos(self) -> dict[type[Request], Handler]:
        """Return what a request of each kind has each silo do."""
        return {
            Compute: self._compute,
            Undelivered: undelivered,
            Open: self._open,
            Save: self._save,
            SaveStatus: self._save_status,
            Load: self._load,
            Migrate: self._migrate,
            Inventory: lambda id, request, vectors: Done(silo=id, keeps=self.states.has(id)),
            Finish: self._finish,
        }

    def answer(self, request: Request, vectors: dict[str, Tensor], lead: Lead | None = None) -> Report:
        """Carry out a request for each of its silos that is hosted here, one after another; all together,
        and led by the server, where it is a dialogue."""
        if request.commits_earlier:
            self.states.begin(request)
        if receive := self._receivers.get(type(request)):
            receive(request, vectors)
        self._tells.begin()
        handler, together = self._handlers.get(type(request)), self.together.get(type(request))
        start = time.perf_counter()
        mine = self._asked(request) if handler or together else []
        self.aggregation = self._aggregator_for(request)
        self.aggregation.begin(request, vectors, mine)
        replies = self._replies(handler, mine, request, vectors) if handler else []
        if together:
            replies = together(mine, request, vectors, lead)
        replies = self._noted(replies, request, vectors)
        about = self._about if request.introduces else {}
        parts = list(self.aggregation.parts())
        seconds = self._tells.seconds(time.perf_counter() - start)
        return Report(headers=replies, parts=parts, seconds=seconds, about=about)

    def _noted(self, replies: list[AnyReply], request: Request, vectors: dict[str, Tensor]) -> list[AnyReply]:
        """Return replies when the site's ledger is on the disk, once for all silos; a fault of each if it
        cannot be, and nothing of their updates is left."""
        try:
            self._context.sync()
        except InputError as error:
            self.aggregation.begin(request, vectors, [])
            return [Done(silo=one.silo, fault=self._tells.fault(one.silo, error)) for one in replies]
        return replies

    def commit(self, request: Request, verdict: Verdict) -> None:
        """Forget what the silos kept whose updates do not count; take in those that have moved here, let
        others go.

        What the server wants explained is printed: it knows what other ranks have said, so that it is said
        once.
        """
        self._tells.explain(verdict.explain)
        self._commit_moves(request, verdict)
        for silo in set(request.cohort).difference(verdict.accepted):  # those on their way here, too
            self.states.pending.pop(silo, None)

    def _commit_moves(self, request: Request, verdict: Verdict) -> None:
        for silo in request.reassigned.keys() & set(verdict.accepted):
            if request.reassigned[silo] == self._transport.rank:
                self.silos.add(silo)
                self.states.take_over(silo)
            elif silo in self.silos:
                self.silos.remove(silo)
                self.states.drop(silo)
                self._shards.pop(silo, None)

    def _aggregator_for(self, request: Request) -> Aggregator:
        if own := self.aggregators.get(type(request)):
            return own
        if isinstance(request, Compute) and self._context.algorithm.purpose(request.work) == "training":
            return self._by_rule
        return self._mean

    def _asked(self, request: Request) -> list[int]:
        if not request.addressed:
            return sorted(self.silos)
        staying = self.silos.intersection(request.cohort).difference(request.reassigned)
        coming = (silo for silo, rank in request.reassigned.items() if rank == self._transport.rank)
        return sorted(staying.union(coming))

    def _replies(
        self, handler: Handler, mine: Sequence[int], request: Request, vectors: dict[str, Tensor]
    ) -> list[AnyReply]:
        """Carry out a request for some silos, one after another."""
        return [self._guarded(handler, silo, request, vectors) for silo in mine]

    def _guarded(self, handler: Handler, silo: int, request: Request, vectors: dict[str, Tensor]) -> AnyReply:
        start = time.perf_counter()
        try:
            reply = handler(silo, request, vectors)
            return reply.model_copy(update={"seconds": self._tells.seconds(time.perf_counter() - start)})
        except SharedVectorChanged:
            raise
        except Exception as error:
            return self.fault(silo, error)

    def fault(self, silo: int, error: Exception) -> AnyReply:
        """Return what the server is told of a silo's error."""
        accelerators.check(self._model.device, error)
        passing = isinstance(error, ShardError | OSError | MemoryError | Unlike)
        return Done(silo=silo, fault=self._tells.fault(silo, error), passing=passing)

    def _compute(self, id: int, request: Compute, vectors: dict[str, Tensor]) -> Header:
        examples = self._context.spec.silos[id].examples
        usual = usual_weight(self._context.weights, examples)
        weight = self._context.algorithm.weight(request.work, examples, usual)
        silo = self.lend(id, request.round, weight, request.work)
        update = self._work(silo, request, vectors)
        check_update(update, request, silo)
        try:
            keeps = bool(silo.kept or silo.state)
            named = defined(update.scalars)
            scalars, sealed = ({}, sorted(named)) if self.aggregation.sealed else (named, [])
            header = Header(silo=id, weight=update.weight, scalars=scalars, sealed=sealed, keeps=keeps)
            header = header.model_copy(update={"vectors": self.aggregation.accumulate(id, update)})
        except ValueError as error:
            raise InputError(f"its update was refused: {reason_of(error)}") from None
        self.states.keep(id, silo.kept)
        return header

    def _work(self, silo: Silo, request: Compute, vectors: dict[str, Tensor]) -> Update:
        """Have a silo do what is asked, between the transforms."""
        algorithm, transforms = self._context.algorithm, self._context.transforms
        message: dict[str, Any] = {**request.scalars, **vectors}
        purpose = algorithm.purpose(request.work)
        for transform in transforms:
            message = transform.receive(silo, message, purpose)
        before = {name: vector._version for name, vector in vectors.items()}
        update = as_update(algorithm.work(request.work)(silo, **message), algorithm, request.work)
        if changed := [name for name, version in before.items() if vectors[name]._version != version]:
            wrote = f"{request.work} wrote to '{changed[0]}'"
            raise SharedVectorChanged(f"{wrote}, which all silos of the node read; have it write to a clone")
        for transform in reversed(transforms):
            update = transform.update(silo, update, purpose)
        return update

    def lend(self, id: int, round: int, weight: float | None = None, work: str = "") -> Silo:
        """Return a silo of this rank, with the models that are lent to all of them, for one request."""
        state, allocate = self.states.of(id), self.aggregation.lend
        given = {"state": state, "round": round, "weight": weight, "work": work, "allocate": allocate}
        return self._context.lend(id, self._shard(id), **given, trains=self._trains)

    def _shard(self, id: int) -> Shard:
        if id not in self._shards:
            self._shards[id] = self._context.open(id)
        return self._shards[id]

    def _open(self, id: int, request: Open, vectors: dict[str, Tensor]) -> AnyReply:
        self._context.check(id, self._shard(id))
        return Done(silo=id)

    def _save(self, id: int, request: Save, vectors: dict[str, Tensor]) -> AnyReply:
        if not (state := self.states.kept.get(id)):
            return FileReply(silo=id)
        self._files.begin(request.round, id, state, request.oldest)
        return FileReply(silo=id, writing=True)

    def _save_status(self, id: int, request: SaveStatus, vectors: dict[str, Tensor]) -> AnyReply:
        if self._files.writing(request.checkpoint, id) and not request.wait:
            return FileReply(silo=id, writing=True)
        return FileReply(silo=id, sha256=self._files.digest(request.checkpoint, id))

    def _load(self, id: int, request: Load, vectors: dict[str, Tensor]) -> AnyReply:
        self.states.kept.pop(id, None)
        self.states.kept[id] = self._read_state(id, request.files, request.round)
        return Done(silo=id, keeps=bool(self.states.kept[id]))

    def _migrate(self, id: int, request: Migrate, vectors: dict[str, Tensor]) -> AnyReply:
        """Open the shard of a silo that is to move here, and read its state from a checkpoint."""
        self._shard(id)
        state = self._read_state(id, request.files, request.checkpoint)
        self.states.arrive(id, state)
        return Done(silo=id, keeps=bool(state))

    def _read_state(self, id: int, files: Mapping[int, str], round: int) -> dict[str, Any]:
        return self._files.read(round, id, files[id]) if id in files else {}

    def _replicate(self, request: Replicate, vectors: dict[str, Tensor]) -> None:
        self.replicas.append(Replica(request.round, request.figures, vectors["state"]))

    def _finish(self, id: int, request: Finish, vectors: dict[str, Tensor]) -> AnyReply:
        """Leave the final model where the silo can use it; say if that cannot be."""
        try:
            self._final.leave(self.lend(id, request.round), vectors, request.sha256)
        except Unwritable as error:
            return FinishReply(silo=id, unwritten=self._tells.fault(id, error))
        return FinishReply(silo=id)
