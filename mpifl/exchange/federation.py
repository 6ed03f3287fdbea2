"""The exchange between the server and the silos: one function that every rank runs, in two phases.

First the request goes out, each rank does the work of its silos, and small headers come back. The server's
verdict says which updates count. Only then do vectors travel, so that a failed silo breaks no collective.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from mpifl.algorithms import Lead, Server
from mpifl.common import Names, RankLost
from mpifl.common.machine import signals
from mpifl.exchange.broadcast import Broadcast
from mpifl.exchange.server_side import (
    ExchangeCosts,
    ExpectedUpdates,
    Judge,
    Knowledge,
    Membership,
    Outcome,
    ReportGathering,
    ServerCohort,
    Workload,
    outcome_of,
)
from mpifl.exchange.worker_side import Worker, following
from mpifl.sums import headers_of
from mpifl.transforms import Transform
from mpifl.wire import (
    Figure,
    Inventory,
    Migrate,
    Replica,
    Replicate,
    Reply,
    Report,
    Request,
    Stop,
    Transport,
    VectorSpec,
    Verdict,
)

_ATTEMPTS = 1000
"""More than the attempts at a round between two deaths of ranks."""


class Federation:
    """All silos, reached through the exchange."""

    def __init__(
        self,
        transport: Transport,
        worker: Worker,
        transforms: Sequence[Transform],
        placed: Mapping[int, Sequence[int]],
        quorum: float,
        device: torch.device,
        knowledge: Knowledge,
        deadline: float | None = None,
        names: Names | None = None,
        *,
        stay: bool = False,
        timed: bool = True,
    ) -> None:
        self.names = names or Names()
        self.judge = Judge(quorum, self.names, knowledge.sent, varied=knowledge.algorithm.varied)
        self.transport = transport
        self.ledger = ExchangeCosts()
        self.transforms = transforms
        self._worker = worker
        self._deadline = deadline
        self.membership = Membership(placed, stay=stay or knowledge.averaging.hides)
        self.population = self.membership.population
        transport.limit_waits(deadline)
        self.knowledge = knowledge
        sizes = [examples["train"] for examples in knowledge.examples]
        self.workload = Workload(sizes, self.membership, moves=timed)
        self.gathering = ReportGathering(transport, self.membership, deadline)
        self._broadcast = Broadcast(transport, device)

    @property
    def replicas(self) -> Sequence[Replica]:
        """The server's state after the latest rounds, the latest last; every rank keeps it."""
        return self._worker.replicas

    def move_to_shared_memory(self, server: Server) -> None:
        """Move the server's vectors into its node's shared memory, so that requests copy nothing."""
        for name, value in server.state.items():
            if isinstance(value, Tensor) and value.is_cpu and value.dim() == 1:
                server.state[name] = self.transport.memory.move_to_shared_memory(value)

    def cohort(self, silos: Sequence[int], server: Server, attempt: int = 0) -> ServerCohort:
        """Return the cohort of these silos for the server's current round."""
        available = self.membership.available(silos)
        return ServerCohort(self, server, available, self.population, self.knowledge.total, attempt)

    def everyone(self, server: Server) -> ServerCohort:
        """Return the cohort of all silos."""
        return self.cohort(range(self.population), server)

    def listen(self, tell: Callable[[str], None]) -> None:
        """Set the function that tells the user which ranks the server waits for."""
        self.gathering.listen(tell)

    def begin_ledger(self) -> None:
        """Forget what exchanges have cost so far."""
        self.ledger = ExchangeCosts()

    def attempt(self, nth: int = 0) -> int:
        """Return the stamp of an attempt at a round.

        It differs after each death, so that silos discard the state that they kept in between.
        """
        return nth + _ATTEMPTS * len(self.transport.lost)

    def move(
        self,
        server: Server,
        assignment: Mapping[int, int],
        states: Mapping[int, str],
        round: int | None = None,
    ) -> dict[int, str]:
        """Move silos to other ranks, which read the silos' state from a checkpoint.

        Args:
            server: The server's state.
            assignment: The new rank of each of the silos.
            states: The sha256 of each silo's file in the checkpoint, for silos that keep state.
            round: The round of the checkpoint; by default the server's round.

        Returns:
            Why a silo could not move, for each that could not.
        """
        request = Migrate(
            round=server.round,
            attempt=self.attempt(),
            cohort=sorted(assignment),
            assignment=dict(assignment),
            checkpoint=server.round if round is None else round,
            files={silo: states[silo] for silo in assignment if silo in states},
        )
        outcome = self.exchange(request)
        assert outcome is not None
        return outcome.faults

    def take_inventory(self, server: Server) -> None:
        """Let every rank say which silos it hosts."""
        self.exchange(Inventory(round=server.round, attempt=self.attempt()))

    def replicate(self, server: Server, figures: Mapping[str, Figure], state: Tensor) -> None:
        """Let every rank keep the server's state after a round.

        Args:
            server: The server, for its round.
            figures: The figures of the round.
            state: The state as bytes, shape [n].
        """
        spec = [VectorSpec(name="state", length=len(state), dtype="uint8")]
        self.exchange(Replicate(round=server.round, figures=dict(figures), vectors=spec), {"state": state})

    def would_rebalance(self) -> bool:
        """Return whether silos should move as soon as their state is written."""
        return bool(self.workload.reassignments_with_state())

    def rebalance(self, server: Server, states: Mapping[int, str]) -> None:
        """Move silos, whose state has just been written, to ranks with less work by the measured times.

        Args:
            server: The server's state, at the round of the checkpoint.
            states: The sha256 of each silo's file in the checkpoint, for silos that keep state.
        """
        if assignment := self.workload.reassignments_with_state():
            self.membership.pinned |= self.move(server, assignment, states).keys()

    def reassignments(self, cohort: Sequence[int]) -> dict[int, int]:
        """Return {silo: rank} for silos of a cohort that should move to another rank of their node."""
        return self.workload.reassignments(cohort, self.transport.nodes)

    def serve(self) -> bool:
        """Answer the server's requests until it says stop; all ranks but the server call this.

        Returns:
            False if the server has died and this rank must take its place.
        """
        while not self.transport.is_server:
            try:
                with following(self.transport):
                    if self.exchange() is None:
                        return True
            except RankLost:
                self.recover()
        return False

    def recover(self) -> None:
        """Meet the other survivors of a death; an inventory must then tell which rank hosts which silo."""
        self.renumber(self.transport.recover())
        self.ledger.forget_training()  # what was asked is asked again

    def renumber(self, ranks: Mapping[int, int]) -> None:
        """Note a death; see `Membership.renumber`."""
        self.membership.renumber(self.transport.workers, ranks)
        self._broadcast.renumber(ranks)

    def stop(self) -> list[int]:
        """Let the other ranks leave `serve`; the server goes last, or it would look dead and be replaced.

        Returns:
            The ranks that did not answer in time, by their numbers when the world began. Nobody waits for
            them any more.
        """
        while True:
            try:
                self.exchange(Stop())
                break
            except RankLost:
                self.recover()
        timed_out = sorted(self.membership.timed_out)
        processes = {rank: one.process for rank, one in self.transport.nodes.neighbours.items()}
        self.transport.platform.mark_unresponsive([processes.get(rank) for rank in timed_out])
        if self._deadline:
            others = processes.keys() - {*timed_out, self.transport.rank}
            self.transport.platform.wait_for_exit(
                [processes[rank] for rank in sorted(others)], self._deadline
            )
        return [self.transport.origins[rank] for rank in timed_out]

    def exchange(
        self,
        request: Request | None = None,
        vectors: Mapping[str, Tensor] | None = None,
        expected: ExpectedUpdates | None = None,
        lead: Lead | None = None,
    ) -> Outcome | None:
        """Run one exchange: the server gives a request and gets the outcome; None after a request to stop.

        Args:
            request: The request; only the server gives one.
            vectors: The vectors of the message.
            expected: What the server knows in advance about the answers.
            lead: Leads the dialogue, if the request is one.

        Raises:
            RoundLost: only at the server: too few silos answered, or their mean is not finite.
        """
        began = time.perf_counter()
        request, message = self._broadcast.deliver(request, vectors or {}, self.membership.unreliable)
        told = {"serial": request.serial, "interrupted": signals.pending(), **self._broadcast.told}
        if lead is not None:
            lead.homes = self.membership.homes
        report = self._worker.answer(request, message, lead).model_copy(update=told)
        aggregation = self._worker.aggregation
        reports = self.gathering.collect(request, report, expected or ExpectedUpdates(), aggregation)
        if request.last:
            self._part()
            return None
        headers = headers_of(reports) + self.gathering.missing(request)
        headers.sort(key=lambda header: header.silo)
        verdict = self._decide(request, reports, headers)
        combined = aggregation.combine(self.transport, verdict)
        self._broadcast.note(aggregation.hanging, lost=combined.lost is not None)
        self._worker.commit(request, verdict)
        self.membership.commit(request.reassigned, verdict.accepted, headers)
        if self.transport.is_server and request.averaged:
            self._account(request, reports, headers, verdict, time.perf_counter() - began, lead)
            self.ledger.note(combined)
            self.membership.silent |= set() if self._deadline else aggregation.hanging
        outcome = outcome_of(verdict if self.transport.is_server else None, headers, combined, aggregation)
        self.ledger.note_means(outcome)
        return outcome

    def _account(
        self,
        request: Request,
        reports: Mapping[int, Report],
        headers: Sequence[Reply],
        verdict: Verdict,
        spent: float,
        lead: Lead | None,
    ) -> None:
        """Note the cost of an exchange that took `spent` seconds; the server calls this."""
        self.workload.add(headers, spent)
        origins, workers = self.transport.origins, reports.keys() & set(self.transport.workers)
        seconds = {origins[rank]: min(reports[rank].seconds, spent) for rank in workers}
        self.ledger.add(request, headers, verdict.accepted, seconds, spent)
        if lead is not None:
            self.ledger.add_lines(lead.heard, lead.said)

    def _part(self) -> None:
        """Leave when all ranks have received the request to stop; later deaths do not matter."""
        if self.transport.is_server:
            self.transport.broadcast_record(b"")
        else:
            with contextlib.suppress(RankLost):
                self.transport.broadcast_record()

    def _decide(self, request: Request, reports: Mapping[int, Report], headers: list[Reply]) -> Verdict:
        """Return the verdict: the server decides which updates count, and tells all ranks."""
        told = None
        if self.transport.is_server:
            told = self.judge.decide(request, reports, headers, self._worker.aggregation).encode()
        return Verdict.model_validate_json(self._broadcast.tell(told))
