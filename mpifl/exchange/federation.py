"""The exchange between the server and the silos: one function that all ranks run alike, in two beats.

First the request goes out and each rank does the work of its silos; small headers come back and the server's verdict
says whose updates count. Only then do vectors move, so that a silo that failed breaks no collective.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import deque
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mpifl.aggregation import headers_of
from mpifl.common import Names, RankLost, signals
from mpifl.exchange.admission import Expected, Knowledge, Refused, screened
from mpifl.exchange.cohort import Cohort
from mpifl.exchange.costs import Ledger
from mpifl.exchange.faults import Judge, mean_of
from mpifl.exchange.gathering import Gathering
from mpifl.exchange.membership import Membership
from mpifl.exchange.worker import Worker
from mpifl.exchange.workload import Workload
from mpifl.server import Server
from mpifl.transforms import Transform
from mpifl.wire import (
    DTYPES,
    Header,
    Mean,
    Mirror,
    Report,
    Request,
    Scalar,
    Transport,
    VectorSpec,
    Verdict,
    forsake,
    see_off,
)

_ATTEMPTS = 1000
"""More than a round is ever asked while nobody dies."""


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
    ) -> None:
        self.names = names or Names()
        self._faults = Judge(quorum, self.names, varied=knowledge.algorithm.varied)
        self.transport = transport
        self.ledger = Ledger()
        self._worker, self.transforms, self._device = worker, transforms, device
        self._deadline, self._serial = deadline, 0
        self.about: dict[int, dict[str, str]] = {}  # what each worker said of itself when it opened its shards
        self.membership = Membership(placed)
        self.population = self.membership.population
        worker.rank, transport.patience = transport.rank, deadline
        self.knowledge = knowledge
        self.workload = Workload([examples["train"] for examples in knowledge.examples])
        self.gathering = Gathering(transport)
        self._received: dict[str, Tensor] = {}
        self.mirrors: deque[Mirror] = deque(maxlen=2)
        """The latest last; the one before it holds until all have the latest."""

    def adopt(self, server: Server) -> None:
        """Move the server's vectors to where the ranks of its node read them, so that asking copies nothing."""
        for name, value in server.state.items():
            if isinstance(value, Tensor) and value.is_cpu and value.dim() == 1:
                server.state[name] = self.transport.memory.adopt(value)

    def cohort(self, silos: Sequence[int], server: Server, attempt: int = 0) -> Cohort:
        """Return the cohort of these silos for the server's current round."""
        present = [silo for silo in silos if silo not in self.membership.absent]
        return Cohort(self, server, present, self.population, self.knowledge.total, attempt)

    def everyone(self, server: Server) -> Cohort:
        """Return the cohort of all silos."""
        return self.cohort(range(self.population), server)

    def attempt(self, nth: int = 0) -> int:
        """Return an attempt's stamp, another after each death, so that silos forget what they kept in between."""
        return nth + _ATTEMPTS * len(self.transport.lost)

    def move(
        self, server: Server, homes: Mapping[int, int], states: Mapping[int, str], round: int | None = None
    ) -> dict[int, str]:
        """Have other ranks host some silos, whose state they read from a checkpoint.

        Args:
            server: Rank 0's.
            homes: The rank that is to host each of the silos.
            states: The sha256 of each silo's file in the checkpoint, for silos that keep state.
            round: The checkpoint's; by default the server's.

        Returns:
            Why silos stay where they are, if they cannot move.
        """
        files: dict[str, Scalar] = {str(silo): states[silo] for silo in homes if silo in states}
        request = Request(
            verb="host",
            round=server.round,
            attempt=self.attempt(),
            cohort=sorted(homes),
            scalars={**files, "checkpoint": server.round if round is None else round},
            homes=dict(homes),
        )
        mean = self.exchange(request)
        assert mean is not None
        return mean.faults

    def dealt(self, cohort: Sequence[int]) -> dict[int, int]:
        """Say which silos of a cohort another rank of their node had better take."""
        nodes, homes = self.transport.nodes, dict[int, int]()
        for node in range(len(nodes)):
            ranks = [rank for rank in self.prompt if nodes.of[rank] == node]
            homes |= self.workload.deal({rank: self.membership.placed[rank].intersection(cohort) for rank in ranks})
        return homes

    @property
    def late(self) -> set[int]:
        """The ranks that had not answered the last request in time."""
        return self.gathering.late

    @property
    def prompt(self) -> list[int]:
        """The workers that answered the last request in time, and may be given more to do."""
        return [rank for rank in self.transport.workers if rank not in self.late]

    def serve(self) -> bool:
        """Answer the server's requests until it says stop; for all ranks but the server's.

        Returns:
            False if the server has died and this rank is to take its place.
        """
        while not self.transport.is_server:
            try:
                if self.exchange() is None:
                    return True
            except RankLost:
                self.recover()
        return False

    def recover(self) -> None:
        """Find together with the other survivors of a death; who hosts what is known to none then."""
        ranks = self.transport.recover()
        self.about = {ranks[rank]: about for rank, about in self.about.items() if rank in ranks}
        self.membership.placed = {rank: set() for rank in self.transport.workers}
        self._worker.rank = self.transport.rank
        self.gathering.renumber(ranks)
        self._received.clear()

    def stop(self) -> list[int]:
        """Let the other ranks leave `serve`; the server goes last, or it would look dead and be replaced.

        Returns:
            The ranks that did not answer in time, as the world began; they are not waited for any more.
        """
        while True:
            try:
                self.exchange(Request(verb="stop"))
                break
            except RankLost:
                self.recover()
        neighbours, late = self.transport.nodes.neighbours, sorted(self.late)
        forsake([neighbours[rank].process if rank in neighbours else None for rank in late])
        if self._deadline:
            others = [one.process for rank, one in neighbours.items() if rank not in {*late, self.transport.rank}]
            see_off(others, self._deadline)
        return [self.transport.origins[rank] for rank in late]

    def exchange(
        self,
        request: Request | None = None,
        vectors: Mapping[str, Tensor] | None = None,
        expected: Expected | None = None,
    ) -> Mean | None:
        """Run one exchange; the server gives a request and gets the mean. None is returned when it is to stop.

        Args:
            request: What the server asks.
            vectors: Of the message.
            expected: What the server knows of the answers beforehand.

        Raises:
            RoundLost: on the server only, when too few silos answered, or their mean is not finite.
        """
        began = time.perf_counter()
        request, message = self._request(request, dict(vectors or {}))
        if request.verb == "mirror":
            self.mirrors.append(Mirror(request.round, request.scalars, message["state"]))
        told = {"serial": request.serial, "interrupted": signals.pending()}
        report = self._worker.answer(request, message).model_copy(update=told)
        reports = self._gather(request, report, expected or Expected())
        if request.verb == "stop":
            self._part()
            return None
        headers = sorted(headers_of(reports) + self._late_headers(request), key=lambda header: header.silo)
        verdict = self._judge(request, reports, headers)
        aggregation = self._worker.aggregation
        combined = aggregation.combine(self.transport, verdict)
        self._worker.settle(request, verdict)
        self._settle_homes(request, verdict, headers)
        if self.transport.is_server and request.verb == "work":
            spent = time.perf_counter() - began
            self.workload.add(headers, spent)
            origins, workers = self.transport.origins, reports.keys() & set(self.transport.workers)
            seconds = {origins[rank]: min(reports[rank].seconds, spent) for rank in workers}
            self.ledger.add(request, headers, verdict.accepted, seconds, spent)
            self.gathering.silent |= set() if self._deadline else aggregation.hanging
        return mean_of(verdict if self.transport.is_server else None, headers, combined, aggregation)

    def _part(self) -> None:
        """Leave when all ranks are known to have been told; what dies from here on is of no interest to the others."""
        if self.transport.is_server:
            self.transport.tell(b"")
        else:
            with contextlib.suppress(RankLost):
                self.transport.tell()

    def _request(self, request: Request | None, vectors: dict[str, Tensor]) -> tuple[Request, dict[str, Tensor]]:
        if request is not None:
            self._serial += 1
            request = request.model_copy(update={"serial": self._serial, "direct": bool(self.transport.silent)})
        request = Request.model_validate_json(self.transport.tell(request.encode() if request else None))
        return request, {one.name: self._spread(one, vectors.get(one.name), request.direct) for one in request.vectors}

    def _spread(self, spec: VectorSpec, vector: Tensor | None, direct: bool) -> Tensor:
        """Send a vector from the server to all ranks; return it where this rank's silos read it."""
        self._received.pop(spec.name, None)  # what was received last may be written over now
        given = None if vector is None else vector.cpu()
        here = self._received[spec.name] = self.transport.spread(given, spec.length, DTYPES[spec.dtype], direct)
        if self._device.type == "cpu":
            return here
        return self.transport.memory.pinned(here).to(self._device, non_blocking=True)

    def _gather(self, request: Request, report: Report, expected: Expected) -> dict[int, Report]:
        """Bring the reports of all ranks to the server, where they are held against what is known."""
        if not self.transport.is_server:
            self.transport.report(report.encode())
            return {self.transport.rank: report}
        reports = {self.transport.rank: self._screened(request, self.transport.rank, report, expected)}
        deadline = self._deadline if request.has_deadline else None
        for rank, came in self.gathering.reports(request.serial, deadline):
            reports[rank] = self._screened(request, rank, came, expected)
        if any(report.interrupted for report in reports.values()):
            signals.note()
        reports = {rank: one for rank, one in reports.items() if rank not in self.late}
        self.about |= {rank: r.about for rank, r in reports.items() if r.about and request.verb == "open"}
        if request.verb == "roll":
            workers = reports.keys() & set(self.transport.workers)
            self.membership.placed |= {rank: {header.silo for header in reports[rank].headers} for rank in workers}
        return reports

    def _screened(self, request: Request, rank: int, came: Report | Refused, expected: Expected) -> Report:
        """Return a rank's report if it keeps all rules, else the faults of its silos."""
        silos = range(self.population) if request.verb == "roll" else self.membership.answerable(request, rank)
        accept = functools.partial(self._worker.aggregation.accept, self.transport, rank)
        return screened(came, request, self.transport.origins[rank], silos, expected, accept)

    def _late_headers(self, request: Request) -> list[Header]:
        """Return the faults of the silos whose ranks did not answer in time."""
        fault = f"no answer within {self._deadline} s" if self._deadline else "its rank fell silent"
        silos = {silo for rank in self.late for silo in self.membership.answerable(request, rank)}
        silos &= self.workload.bound if request.verb == "save" else silos  # of the others there is nothing to save
        return [Header(silo=silo, fault=fault, passing=True) for silo in sorted(silos)]

    def _judge(self, request: Request, reports: Mapping[int, Report], headers: list[Header]) -> Verdict:
        """Decide, at the server, whose updates count, and tell all ranks."""
        told = None
        if self.transport.is_server:
            told = self._faults.decide(request, reports, headers, self._worker.aggregation).encode()
        return Verdict.model_validate_json(self.transport.tell(told))

    def _settle_homes(self, request: Request, verdict: Verdict, headers: list[Header]) -> None:
        """Remember, at the server, who has moved, and who cannot."""
        self.membership.move(request.homes, verdict.accepted)
        refused = {h.silo for h in headers if h.fault is not None and request.homes.get(h.silo, -1) not in self.late}
        self.workload.bound |= {h.silo for h in headers if h.keeps} | refused.intersection(request.homes)
