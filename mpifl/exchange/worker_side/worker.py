"""The worker: it hosts the silos of one rank, keeps their states and carries out requests."""

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
"""Answers a request for all asked silos of a rank at once; at the server it gets the dialogue's lead, too."""


class Worker:
    """Hosts silos: their states, their shards, and one model that they are lent in turn.

    A shard is opened when its silo is first asked.

    Attributes:
        silos: The silos that this rank hosts.
        states: Their states.
        aggregators: The aggregator of each kind of request that a wing adds.
        together: Functions that answer a wing's kind of request for all silos at once.
        replicas: The server's state after the latest rounds, the latest last. The one before it counts until
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
        """The aggregator of the current request: the job's rule in training, else the exact mean."""
        self._shards: dict[int, Shard] = {}
        self._trains = trains
        self._tells = context.tells(Names([entry.name for entry in context.spec.silos]))
        self._files = StateFiles(context.run, context.seal)
        self._final = FinalModel(context.run, context.algorithm, self._model, context.personal)
        self._handlers = self._handlers_of_silos()
        self._receivers: dict[type[Request], Receiver] = {Replicate: self._replicate}
        """Handlers of requests to the rank itself, whichever silos it hosts."""

    @property
    def kinds(self) -> frozenset[type[Request]]:
        """The kinds of requests that the worker answers without a wing."""
        return frozenset([*self._handlers, *self._receivers])

    def _handlers_of_silos(self) -> dict[type[Request], Handler]:
        """Return the handler of each kind of request to silos."""
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
        """Carry out a request for each of its silos that this rank hosts, and return the report.

        The silos answer one after another. In a dialogue all answer together, and the server leads.
        """
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
        """Return the replies after the site's ledger is on disk, written once for all silos.

        If the ledger cannot be written, return a fault for each silo and drop all updates.
        """
        try:
            self._context.sync()
        except InputError as error:
            self.aggregation.begin(request, vectors, [])
            return [Done(silo=one.silo, fault=self._tells.fault(one.silo, error)) for one in replies]
        return replies

    def commit(self, request: Request, verdict: Verdict) -> None:
        """Carry out a verdict: discard the state of silos whose updates do not count, and move silos.

        Print the tracebacks that the server asks for. It asks only one rank for each error.
        """
        self._tells.explain(verdict.explain)
        self._commit_moves(request, verdict)
        for silo in set(request.cohort).difference(verdict.accepted):  # also silos that were to move here
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
        """Return the reply by which the server learns of a silo's error."""
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
            sealed = sorted(named) if self.aggregation.sealed else []
            scalars = {name: one for name, one in named.items() if not sealed or name in update.open}
            header = Header(
                silo=id,
                weight=update.weight,
                scalars=scalars,
                sealed=sealed,
                keeps=keeps,
                **self._tells.work(silo),
            )
            header = header.model_copy(update={"vectors": self.aggregation.accumulate(id, update)})
        except ValueError as error:
            raise InputError(f"its update was refused: {reason_of(error)}") from None
        self.states.keep(id, silo.kept)
        return header

    def _work(self, silo: Silo, request: Compute, vectors: dict[str, Tensor]) -> Update:
        """Run the client method of a request at a silo, between the transforms."""
        algorithm, transforms = self._context.algorithm, self._context.transforms
        message: dict[str, Any] = {**request.scalars, **vectors}
        purpose = algorithm.purpose(request.work)
        for transform in transforms:
            message = transform.receive(silo, message, purpose)
        before = {name: vector._version for name, vector in vectors.items()}
        update = as_update(algorithm.work(request.work)(silo, **message), algorithm, request.work)
        if changed := [name for name, version in before.items() if vectors[name]._version != version]:
            code = getattr(type(algorithm), request.work).__code__
            method = f"{code.co_filename}:{code.co_firstlineno}: {type(algorithm).__name__}.{request.work}"
            wrote = f"{method} wrote to '{changed[0]}'"
            raise SharedVectorChanged(f"{wrote}, which all silos of the node read; have it write to a clone")
        for transform in reversed(transforms):
            update = transform.update(silo, update, purpose)
        return update

    def lend(self, id: int, round: int, weight: float | None = None, work: str = "") -> Silo:
        """Return a silo of this rank for one request, with the models that all of the silos share."""
        state, allocate = self.states.of(id), self.aggregation.lend
        given = {"state": state, "round": round, "weight": weight, "work": work, "allocate": allocate}
        return self._context.lend(id, self._shard(id), **given, trains=self._trains)

    def _shard(self, id: int) -> Shard:
        if id not in self._shards or self._shards[id].written:
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
        """Prepare a silo's move to this rank: open its shard, and read its state from a checkpoint."""
        self._shard(id)
        state = self._read_state(id, request.files, request.checkpoint)
        self.states.arrive(id, state)
        return Done(silo=id, keeps=bool(state))

    def _read_state(self, id: int, files: Mapping[int, str], round: int) -> dict[str, Any]:
        return self._files.read(round, id, files[id]) if id in files else {}

    def _replicate(self, request: Replicate, vectors: dict[str, Tensor]) -> None:
        self.replicas.append(Replica(request.round, request.figures, vectors["state"]))

    def _finish(self, id: int, request: Finish, vectors: dict[str, Tensor]) -> AnyReply:
        """Write the final model for a silo; the reply says if this fails."""
        try:
            self._final.leave(self.lend(id, request.round), vectors, request.sha256, request.kept)
        except Unwritable as error:
            return FinishReply(silo=id, unwritten=self._tells.fault(id, error))
        return FinishReply(silo=id)
