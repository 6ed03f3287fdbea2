"""The exchange between the server and the silos: one function that all ranks run alike, in two beats.

First the request goes out and each rank does the work of its silos; small headers come back and the server's verdict
says whose updates count. Only then do vectors move, so that a silo that failed breaks no collective.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mpifl import interrupts
from mpifl.aggregation.plan import averages, fitting, headers_of, plan
from mpifl.algorithms.base import Work
from mpifl.errors import RoundLost
from mpifl.ledger import Ledger
from mpifl.messages import DTYPES, Header, Mean, Piece, Report, Request, Scalar, VectorSpec, Verdict
from mpifl.placement import rebalance
from mpifl.server import Server
from mpifl.transforms import Transform
from mpifl.transport import Transport
from mpifl.worker import Worker

HURRIED = ("work", "save", "host", "finish")
"""What a deadline is for; shards are opened, and states read, however long it takes."""
MEASURED = 3
"""Times that a silo must have worked before its time is trusted."""


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
        deadline: float | None = None,
        sizes: Sequence[int] = (),
    ) -> None:
        self.transport = transport
        self.population = sum(len(silos) for silos in placed.values())
        self.ledger = Ledger()
        self._worker, self._transforms, self._quorum, self._device = worker, transforms, quorum, device
        self.about: dict[int, dict[str, str]] = {}
        """What each worker said of itself when it opened its shards."""
        self.placed = {rank: set(silos) for rank, silos in placed.items()}
        worker.rank = transport.rank
        self._worked: dict[int, tuple[float, int]] = {}
        self._deadline, self._serial = deadline, 0
        self._sizes, self._rate = sizes, (0.0, 0)
        self.bound: set[int] = set()
        """Silos that keep something, or whose shard no other rank could open."""
        self.late: set[int] = set()
        """Ranks that had not answered the last request in time."""
        self._received: dict[str, Tensor] = {}

    def adopt(self, server: Server) -> None:
        """Move the server's vectors to where the ranks of its node read them, so that asking copies nothing."""
        for name, value in server.state.items():
            if isinstance(value, Tensor) and value.is_cpu and value.dim() == 1:
                server.state[name] = self.transport.memory.adopt(value)

    def cohort(self, silos: Sequence[int], server: Server, attempt: int = 0) -> Cohort:
        """Return the cohort of these silos for the server's current round."""
        return Cohort(self, server, list(silos), self.population, attempt)

    def everyone(self, server: Server) -> Cohort:
        """Return the cohort of all silos."""
        return self.cohort(range(self.population), server)

    def cost_of(self, silo: int) -> float:
        """Return the seconds that a silo's work may take, as measured or as its examples take elsewhere; 0 at first."""
        measured = self.seconds_of(silo)
        return self._rate[0] / max(self._rate[1], 1) * self._sizes[silo] if measured is None else measured

    def seconds_of(self, silo: int) -> float | None:
        """Return how long a silo's work took on average, None while it has not been asked often enough."""
        total, times = self._worked.get(silo, (0.0, 0))
        return total / times if times >= MEASURED else None

    def move(self, server: Server, homes: Mapping[int, int], states: Mapping[int, str]) -> dict[int, str]:
        """Have other ranks host some silos, whose state they read from the checkpoint of the server's round.

        Args:
            server: Rank 0's.
            homes: The rank that is to host each of the silos.
            states: The sha256 of each silo's file in the checkpoint, for silos that keep state.

        Returns:
            Why silos stay where they are, if they cannot move.
        """
        files: dict[str, Scalar] = {str(silo): states[silo] for silo in homes if silo in states}
        request = Request(verb="host", round=server.round, cohort=sorted(homes), scalars=files, homes=dict(homes))
        mean = self.exchange(request)
        assert mean is not None
        return mean.faults

    def deal(self, cohort: Sequence[int]) -> dict[int, int]:
        """Say which silos of a cohort go to another rank of their node, so that all are done at the same time.

        Only silos that keep nothing do, and whose shard the other rank can open.
        """
        homes: dict[int, int] = {}
        nodes, asked = self.transport.nodes, set(cohort)
        for node in range(len(nodes)):
            held = {r: self.placed[r] & asked for r in self.transport.workers if nodes.of[r] == node}
            costs = {silo: self.cost_of(silo) for silos in held.values() for silo in silos} if len(held) > 1 else {}
            free = {silo: cost for silo, cost in costs.items() if silo not in self.bound}
            fixed = {rank: sum(costs.get(k, 0.0) for k in silos & self.bound) for rank, silos in held.items()}
            homes |= rebalance(free, held, fixed)
        return homes

    def serve(self) -> None:
        """Answer the server's requests until it says stop; for all ranks but the server's."""
        while self.exchange() is not None:
            pass

    def stop(self) -> None:
        """Let the other ranks leave `serve`."""
        self.transport.tell(Request(verb="stop").encode())

    def exchange(self, request: Request | None = None, vectors: Mapping[str, Tensor] | None = None) -> Mean | None:
        """Run one exchange; the server gives a request and gets the mean. None is returned when it is to stop.

        Raises:
            RoundLost: on the server only, when too few silos answered.
        """
        began = time.perf_counter()
        request, message = self._request(request, dict(vectors or {}))
        if request.verb == "stop":
            return None
        told = {"serial": request.serial, "interrupted": interrupts.pending()}
        report = self._worker.answer(request, message).model_copy(update=told)
        reports = fitting(self._gather(request, report))
        headers = sorted(headers_of(reports) + self._late_headers(request), key=lambda header: header.silo)
        verdict = self._judge(request, reports, headers)
        vectors = self._worker.aggregation.combine(self.transport, verdict)
        self._worker.settle(request, verdict)
        self._settle_homes(request, verdict, headers)
        if self.transport.is_server and request.verb == "work":
            self._remember(headers)
            seconds = {rank: report.seconds for rank, report in reports.items() if rank in self.transport.workers}
            self.ledger.add(request, headers, verdict.accepted, seconds, time.perf_counter() - began)
        return self._mean(verdict, headers, vectors)

    def _request(self, request: Request | None, vectors: dict[str, Tensor]) -> tuple[Request, dict[str, Tensor]]:
        if request is not None:
            self._serial += 1
            request = request.model_copy(update={"serial": self._serial})
        request = Request.model_validate_json(self.transport.tell(request.encode() if request else None))
        return request, {spec.name: self._spread(spec, vectors.get(spec.name)) for spec in request.vectors}

    def _spread(self, spec: VectorSpec, vector: Tensor | None) -> Tensor:
        """Send a vector from the server to all ranks; return it where this rank's silos read it."""
        self._received.pop(spec.name, None)  # what was received last may be written over now
        given = None if vector is None else vector.cpu()
        here = self._received[spec.name] = self.transport.spread(given, spec.length, DTYPES[spec.dtype])
        if self._device.type == "cpu":
            return here
        return self.transport.memory.pinned(here).to(self._device, non_blocking=True)

    def _gather(self, request: Request, report: Report) -> dict[int, Report]:
        """Bring the reports of all ranks to the server, each as it comes."""
        reports = {self.transport.rank: report}
        if not self.transport.is_server:
            self.transport.report(report.encode())
            return reports
        until = time.perf_counter() + self._deadline if self._deadline and request.verb in HURRIED else None
        awaited = set(range(1, self.transport.size))
        while awaited and (found := self.transport.next_report(until)):
            rank, came = found[0], Report.model_validate_json(found[1])
            if came.serial != request.serial:  # of a request that went on without it
                continue
            awaited.discard(rank)
            reports[rank] = self._hosted(request, rank, came)
            if came.interrupted:
                interrupts.note()
        nodes = self.transport.nodes
        self.late = {rank for rank in range(self.transport.size) if awaited & {rank, nodes.leader_of(nodes.of[rank])}}
        reports = {rank: one for rank, one in reports.items() if rank not in self.late}
        self.about |= {rank: r.about for rank, r in reports.items() if r.about}
        return reports

    def _late_headers(self, request: Request) -> list[Header]:
        """Return the faults of the silos whose ranks did not answer in time."""
        fault = f"no answer within {self._deadline} s"
        silos = {silo for rank in self.late for silo in self.placed.get(rank, ())}
        return [Header(silo=silo, fault=fault) for silo in sorted(silos.intersection(request.cohort))]

    def _hosted(self, request: Request, rank: int, report: Report) -> Report:
        """Leave out what a rank says of silos that are not its own."""
        own = self.placed.get(rank, set()).difference(request.homes)
        own |= {silo for silo, home in request.homes.items() if home == rank}
        return report.model_copy(update={"headers": [header for header in report.headers if header.silo in own]})

    def _judge(self, request: Request, reports: Mapping[int, Report], headers: list[Header]) -> Verdict:
        """Decide, at the server, whose updates count, and tell all ranks."""
        verdict = Verdict()
        if self.transport.is_server:
            pieces = plan(reports)
            lost = self._reason_to_lose(request, headers, pieces) if request.verb == "work" else None
            accepted = [] if lost else [header.silo for header in headers if header.fault is None]
            placed = [] if lost else self._worker.aggregation.place(pieces)
            verdict = Verdict(lost=lost, accepted=accepted, ranks=sorted(reports), pieces=placed)
        return Verdict.model_validate_json(self.transport.tell(verdict.encode() if self.transport.is_server else None))

    def _reason_to_lose(self, request: Request, headers: list[Header], pieces: Sequence[Piece]) -> str | None:
        faults = [f"silo {header.silo}: {header.fault}" for header in headers if header.fault is not None]
        answered, asked = len(headers) - len(faults), len(request.cohort)
        if answered < max(math.ceil(self._quorum * asked - 1e-9), 1):
            return f"{answered} of {asked} silos answered ({'; '.join(faults[:3])})"
        weightless = [piece.name for piece in pieces if piece.total == 0]
        return f"all updates weigh 0 in the mean of '{weightless[0]}'" if weightless else None

    def _settle_homes(self, request: Request, verdict: Verdict, headers: list[Header]) -> None:
        """Remember, at the server, who has moved, and who cannot."""
        accepted = set(verdict.accepted)
        for silo, home in request.homes.items():
            if silo in accepted:
                for silos in self.placed.values():
                    silos.discard(silo)
                self.placed[home].add(silo)
        self.bound |= {header.silo for header in headers if header.keeps}
        self.bound |= {header.silo for header in headers if header.fault is not None and header.silo in request.homes}

    def _remember(self, headers: list[Header]) -> None:
        for header in headers:
            total, times = self._worked.get(header.silo, (0.0, 0))
            self._worked[header.silo] = total + header.seconds, times + (header.fault is None)
            if header.fault is None and self._sizes:
                self._rate = self._rate[0] + header.seconds, self._rate[1] + self._sizes[header.silo]

    def _mean(self, verdict: Verdict, headers: list[Header], vectors: dict[str, Tensor]) -> Mean:
        if verdict.lost and self.transport.is_server:
            raise RoundLost(verdict.lost)
        faults = {header.silo: header.fault for header in headers if header.fault is not None}
        good = [header for header in headers if header.fault is None]
        return Mean(vectors, averages(good), {header.silo: header.scalars for header in good}, faults)


@dataclass
class Cohort:
    """The silos of a round; see `algorithms.base.Cohort`."""

    federation: Federation
    server: Server
    silos: list[int]
    population: int
    attempt: int = 0

    def mean(self, work: Work, /, **message: Tensor | Scalar) -> Mean:
        """Run `work` at every silo of the cohort with this message; return the weighted mean of the updates.

        Raises:
            RoundLost: too few silos answered.
        """
        transforms = self.federation._transforms
        for transform in transforms:
            message = transform.request(self.server, message)
        mean = self.ask("work", work.__name__, **message)
        for transform in reversed(transforms):
            mean = transform.mean(self.server, mean)
        return mean

    def ask(self, verb: str, work: str = "", /, **message: Tensor | Scalar) -> Mean:
        """Make a request of any verb to these silos and return their answer as it is."""
        vectors = {name: value.detach() for name, value in message.items() if isinstance(value, Tensor)}
        request = Request(
            verb=verb,  # type: ignore[arg-type]
            work=work,
            round=self.server.round,
            attempt=self.attempt,
            cohort=self.silos,
            scalars={name: value for name, value in message.items() if not isinstance(value, Tensor)},
            vectors=[_spec(name, vector) for name, vector in vectors.items()],
            homes=self.federation.deal(self.silos) if verb == "work" else {},
        )
        mean = self.federation.exchange(request, vectors)
        assert mean is not None
        return mean


def _spec(name: str, vector: Tensor) -> VectorSpec:
    dtype = str(vector.dtype).removeprefix("torch.")
    if dtype not in DTYPES or vector.dim() != 1 or not vector.is_contiguous():
        raise TypeError(
            f"'{name}' is {dtype} of shape {list(vector.shape)}; vectors that travel are flat, of {list(DTYPES)}"
        )
    return VectorSpec(name=name, length=len(vector), dtype=dtype)
